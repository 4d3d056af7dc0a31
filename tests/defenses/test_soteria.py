"""Defences that change local steps: slow references, no effect at zero, and refused where they cannot be."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.cohort import Cohort
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier
from fedleak.client.nets.dropout import spread
from fedleak.core.errors import InputError
from fedleak.core.seeding import generator_for
from fedleak.datamodules.images.synthetic_images import SyntheticImages
from fedleak.defenses.base import Defense, LocalStep
from fedleak.defenses.mixup import Mixup
from fedleak.defenses.soteria import Soteria
from fedleak.modules.learners.fncf import FNCF
from fedleak.modules.learners.image_classifier import FederatedClassifier
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording
from tests import toys

SHAPE, CLASSES, RATE = (1, 12, 12), 5, 0.5
NETWORK = ClassifierOptions(channels=2, hidden=6, activation="tanh")
STEP = LocalTraining(optimizer="sgd", learning_rate=RATE)
COHORT = Cohort(
    0,
    torch.arange(2),
    {
        "image": torch.rand(2, 4, *SHAPE, generator=torch.Generator().manual_seed(0)),
        "label": torch.tensor([[0, 1, 2, 3], [4, 4, 1, 0]]),
    },
    torch.tensor([[True, True, True, True], [True, True, True, False]]),
)


def algorithm(network: ClassifierOptions = NETWORK, **options: Any) -> ImageClassifierAlgorithm:
    return ImageClassifierAlgorithm(
        **{"network": network, "image_shape": SHAPE, "num_classes": CLASSES, "local": STEP, **options}
    )


def model(network: ClassifierOptions = NETWORK) -> dict[str, Tensor]:
    made = build_classifier(network, image_shape=SHAPE, classes=CLASSES, generator=generator_for(0, "model"))
    return {name: value.detach() for name, value in made.named_parameters()}


def deltas(network: ClassifierOptions = NETWORK, **options: Any) -> dict[str, Tensor]:
    return algorithm(network, **options).train(model(network), COHORT, seed=3).deltas


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.allclose(value, other[name], atol=1e-6) for name, value in one.items())


@pytest.mark.parametrize("share", [0.3, 0.5, 1.0])
def test_the_gradient_under_soteria_equals_a_loop_over_examples_and_features(share: float) -> None:
    parameters, plain = model(), deltas()
    found = deltas(soteria=Soteria(share=share))
    built = build_classifier(NETWORK, image_shape=SHAPE, classes=CLASSES, generator=generator_for(0, "model"))
    for client in range(2):
        own = COHORT.mask[client]
        expected = torch.zeros_like(parameters["output.weight"])
        for image, label in zip(
            COHORT.examples["image"][client][own], COHORT.examples["label"][client][own], strict=True
        ):
            image = image.clone().requires_grad_()
            features = built.body(image[None])[0]
            ratios = [
                abs(float(feature.detach())) / float(torch.autograd.grad(feature, image, retain_graph=True)[0].norm())
                for feature in features
            ]
            worst = sorted(range(6), key=lambda place: -ratios[place])[: round(share * 6)]
            kept = torch.tensor([place not in worst for place in range(6)])
            error = built.output(features[None])[0].softmax(0) - functional.one_hot(label, CLASSES)
            expected -= RATE * torch.outer(error, features * kept).detach() / int(own.sum())
        torch.testing.assert_close(found["output.weight"][client], expected, atol=1e-6, rtol=1e-4)
    assert all(torch.allclose(found[n], plain[n], atol=1e-6) for n in plain if n != "output.weight")


def test_mixup_trains_on_means_of_two_examples_and_of_their_labels() -> None:
    step = LocalStep(
        inputs=COHORT.examples["image"][1],
        labels=COHORT.examples["label"][1],
        mask=COHORT.mask[1],
        classes=CLASSES,
        output="output",
        independent=True,
        classify=lambda inputs: (inputs, inputs),
    )
    changed = Mixup(alpha=1.0).change_examples(step, torch.Generator().manual_seed(1))
    hot = functional.one_hot(step.labels, CLASSES).float()
    moved = False
    for place in range(3):
        pairs = torch.stack([step.inputs[place] - step.inputs[other] for other in range(3)]).flatten(1)
        change = (step.inputs[place] - changed.inputs[place]).flatten()
        shares = (pairs @ change) / pairs.square().sum(1).clamp(min=1e-9)
        gaps = (shares[:, None] * pairs - change).norm(dim=1)
        partner, share = int(gaps.argmin()), float(shares[gaps.argmin()])
        assert float(gaps[partner]) < 1e-5
        assert 0 <= share <= 1
        torch.testing.assert_close(changed.labels[place], (1 - share) * hot[place] + share * hot[partner])
        moved |= partner != place and share > 0
    assert moved
    torch.testing.assert_close(changed.inputs[3], step.inputs[3])  # padding stays


def test_the_bottleneck_adds_its_divergence_and_is_the_mean_without_draws() -> None:
    options = dataclasses.replace(NETWORK, bottleneck=3, divergence=0.1)
    made = build_classifier(options, image_shape=SHAPE, classes=CLASSES, generator=generator_for(0, "model"))
    images, labels = COHORT.examples["image"][0], COHORT.examples["label"][0]
    mean, raw = made.bottleneck.encoder(made.body(images)).chunk(2, 1)  # type: ignore[operator]
    logits = made.output(made.bottleneck.decoder(mean))  # type: ignore[operator]
    spread_of = torch.distributions.Normal(mean, functional.softplus(raw))
    divergence = torch.distributions.kl_divergence(spread_of, torch.distributions.Normal(0.0, 1.0)).sum(1)
    expected = functional.cross_entropy(logits, labels) + 0.1 * divergence.mean()
    loss = algorithm(options).loss(model(options), {"image": images, "label": labels}, torch.ones(4, dtype=torch.bool))
    torch.testing.assert_close(loss, expected.detach())


def test_the_noise_of_the_bottleneck_is_standard_normal_and_differs_between_examples() -> None:
    options = dataclasses.replace(NETWORK, bottleneck=400)
    made = build_classifier(options, image_shape=SHAPE, classes=CLASSES, generator=generator_for(0, "model"))
    layer = made.bottleneck
    torch.nn.init.zeros_(layer.encoder.weight)  # type: ignore[union-attr, arg-type]
    layer.encoder.bias.data = torch.cat([torch.zeros(400), torch.full((400,), 0.541325)])  # type: ignore[union-attr]
    layer.decoder = torch.nn.Identity()
    layer.draws = torch.arange(50)
    noise = layer(torch.zeros(50, 6)).detach()
    assert abs(float(noise.mean())) < 0.03
    assert abs(float(noise.std()) - 1) < 0.03
    assert abs(float((noise > 1.96).double().mean()) - 0.025) < 0.005
    assert float(torch.corrcoef(noise).fill_diagonal_(0).abs().max()) < 0.3


def test_given_noise_goes_before_draws() -> None:
    options = dataclasses.replace(NETWORK, dropout=0.5)
    images, labels = COHORT.examples["image"][0], COHORT.examples["label"][0]
    fields, mask = {"image": images, "label": labels}, torch.ones(4, dtype=torch.bool)
    draws = torch.arange(4)
    factors = (spread(draws, (6,)) >= 0.5) * 2.0
    drawn, given = (
        algorithm(options).loss(model(options), {**fields, **more}, mask)
        for more in ({"draws": draws}, {"noise/0": factors, "draws": draws + 9})
    )
    torch.testing.assert_close(drawn, given)
    assert not torch.allclose(drawn, algorithm(options).loss(model(options), fields, mask))


def test_nothing_changes_at_zero() -> None:
    plain = deltas()
    assert same(plain, deltas(soteria=Soteria(share=0.0)))
    assert same(plain, deltas(mixup=Mixup(alpha=0.0)))
    assert same(plain, deltas(dataclasses.replace(NETWORK, dropout=0.0)))
    assert not same(plain, deltas(mixup=Mixup(alpha=1.0)))
    options = dataclasses.replace(NETWORK, bottleneck=3, divergence=0.0)
    assert not same(deltas(options), deltas(dataclasses.replace(options, divergence=0.5)))


def test_draws_of_mixup_depend_on_the_key_and_the_client() -> None:
    clients = algorithm(mixup=Mixup(alpha=1.0))
    one, again, other = (clients.train(model(), COHORT, noise_key=key).deltas for key in (b"a", b"a", b"b"))
    assert same(one, again)
    assert not same(one, other)


@pytest.mark.parametrize("defense", [Soteria(share=0.1), Mixup(alpha=1.0)])
def test_other_engines_and_clipped_examples_are_refused(defense: Defense) -> None:
    for local in (
        dataclasses.replace(STEP, engine="vectorized"),
        dataclasses.replace(STEP, example_clip=1.0, noise_multiplier=1.0),
    ):
        with pytest.raises(InputError, match=type(defense).__name__):
            algorithm(local=local).train(model(), COHORT, defenses=[defense])


@pytest.mark.parametrize("defense", [Soteria(share=0.1), Mixup(alpha=1.0)])
def test_other_learners_are_refused(defense: Defense) -> None:
    data = toys.data()
    module = FNCF(num_items=data.num_items, num_clients=data.num_clients, defenses=[defense], local=toys.LOCAL)
    with pytest.raises(InputError, match=r"sequential|classify"):
        module.client_updates(data.cohort(0), module.public_parameters())


def test_soteria_refuses_batch_norm() -> None:
    options = dataclasses.replace(NETWORK, norm="before-activation")
    with pytest.raises(InputError, match="norm"):
        deltas(options, soteria=Soteria(share=0.5))


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_impossible_values_are_refused(value: float) -> None:
    with pytest.raises(InputError, match="share"):
        Soteria(share=value)
    with pytest.raises(InputError, match="share"):
        Soteria(share=1.1)
    with pytest.raises(InputError, match="alpha"):
        Mixup(alpha=value)
    with pytest.raises(InputError, match="divergence"):
        ClassifierOptions(divergence=value)
    with pytest.raises(InputError, match="bottleneck"):
        ClassifierOptions(bottleneck=0)


@pytest.mark.integration
@pytest.mark.parametrize("defense", [Soteria(share=0.5), Mixup(alpha=1.0)], ids=lambda one: type(one).__name__)
def test_a_recording_names_what_changes_the_training(defense: Defense, tmp_path: Path) -> None:
    module = FederatedClassifier(local=STEP, defenses=[defense])
    recorder = DeltaRecorder(directory=str(tmp_path / "deltas"))
    data = SyntheticImages(clients_per_round=1.0)
    toys.quiet_trainer(1, tmp_path, recorder).fit(module, datamodule=data)
    learner = recorded_learner(Recording(tmp_path / "deltas"))
    assert isinstance(learner, ImageClassifierAlgorithm)
    assert [(type(one), vars(one)) for one in learner.training_defenses] == [(type(defense), vars(defense))]
