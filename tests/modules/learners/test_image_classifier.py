"""Federated image classification: equal deltas from both engines, a seeded run, batch norm that stays at home."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from fedleak.attacks.composition.base import network_outputs
from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.cohort import Cohort
from fedleak.client.engine.batches import client_draws, step_draws
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.engine.local_training import train_clients
from fedleak.client.engine.task import DRAWS
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.nets.batch_norm import BatchNorm
from fedleak.client.nets.classifiers import (
    Classifier,
    ClassifierOptions,
    NetworkName,
    build_classifier,
    classifier_shapes,
)
from fedleak.client.nets.dropout import Dropout, draw_noise
from fedleak.client.network import ModuleAlgorithm
from fedleak.core.errors import InputError
from fedleak.core.seeding import generator_for
from fedleak.datamodules.images.digits import Digits
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.modules.learners.image_classifier import FederatedClassifier
from fedleak.recordings.named_algorithm import learner_from
from fedleak.recordings.recording import Recording
from tests.composition_toys import SHAPE, learner, source, views
from tests.toys import quiet_trainer


def network(options: ClassifierOptions, *, shape: tuple[int, int, int] = SHAPE, classes: int = 10) -> Classifier:
    return build_classifier(options, image_shape=shape, classes=classes, generator=generator_for(0, "network"))


def learner_of(**options: Any) -> FederatedClassifier:
    return FederatedClassifier(num_classes=10, image_shape=SHAPE, network=ClassifierOptions(**options))


def cohort(sizes: tuple[int, ...] = (7, 4), shape: tuple[int, int, int] = SHAPE) -> Cohort:
    generator = generator_for(0, "cohort")
    mask = torch.arange(max(sizes))[None] < torch.tensor(sizes)[:, None]
    images = torch.rand(len(sizes), max(sizes), *shape, generator=generator) * mask[..., None, None, None]
    labels = torch.randint(10, mask.shape, generator=generator) * mask
    return Cohort(0, torch.arange(len(sizes)), {"image": images, "label": labels}, mask)


@pytest.mark.parametrize("norm", ["none", "before-activation", "after-activation"])
@pytest.mark.parametrize("optimizer", ["sgd", "adadelta"])
def test_both_engines_give_the_same_deltas(norm: str, optimizer: Any) -> None:
    module = learner_of(hidden=8, channels=2, norm=norm, dropout=0.3)
    results = []
    for engine in ("vectorized", "sequential"):
        local = LocalTraining(optimizer=optimizer, learning_rate=0.1, eps=1e-6, batch_size=3, engine=engine)
        results.append(train_clients(module.algorithm, module.public_parameters(), {}, cohort(), local, seed=0).deltas)
    for name, value in results[0].items():
        torch.testing.assert_close(value, results[1][name], atol=2e-6, rtol=1e-4)


def test_batch_norm_is_torchs_on_the_real_examples_of_a_batch() -> None:
    layer = BatchNorm(3)
    values = torch.randn(6, 3, 4, 4, generator=generator_for(0, "norm"))
    expected = functional.batch_norm(values[:4], None, None, training=True)
    layer.mask = torch.tensor([1, 1, 1, 1, 0, 0]).bool()
    torch.testing.assert_close(layer(values)[:4], expected, atol=1e-5, rtol=1e-5)
    layer.mask = None
    torch.testing.assert_close(layer(values[:4]), expected, atol=1e-5, rtol=1e-5)


def test_dropout_zeroes_its_share_and_keeps_the_mean() -> None:
    layer = Dropout(0.3)
    values = torch.ones(400, 50)
    assert torch.equal(layer(values), values)
    layer.draws = torch.arange(400)
    dropped = layer(values)
    assert abs(float((dropped == 0).double().mean()) - 0.3) < 0.01
    assert abs(float(dropped.mean()) - 1) < 0.02
    ups = (dropped > 0).double()
    assert float(torch.corrcoef(ups.T).fill_diagonal_(0).abs().max()) < 0.25
    assert float(torch.corrcoef(ups).fill_diagonal_(0).abs().mean()) < 0.15


def test_a_random_loss_draws_anew_for_every_step_client_and_round() -> None:
    mask = torch.ones(2, 3).bool()
    seen = []
    for number in (0, 1):
        drawn = client_draws(Cohort(number, torch.tensor([4, 7]), {}, mask), seed=0)
        seen += [step_draws(drawn, step, mask)[DRAWS] for step in (0, 1)]
    assert len(torch.unique(torch.stack(seen))) == 2 * 2 * 2 * 3
    assert step_draws(None, 0, mask) == {}


def test_dropout_takes_part_in_training_and_in_full_batches_alike() -> None:
    task = ModuleAlgorithm(local=LocalTraining(), module=network(ClassifierOptions(hidden=8, dropout=0.5)))
    parameters = {name: value.detach() for name, value in task.template.named_parameters()}
    found = {}
    for engine in ("vectorized", "sequential"):
        local = LocalTraining(learning_rate=0.1, epochs=2, engine=engine)
        found[engine] = train_clients(task, parameters, {}, cohort(), local, seed=0).deltas["output.weight"]
    torch.testing.assert_close(found["vectorized"], found["sequential"], atol=2e-6, rtol=1e-4)
    other = train_clients(task, parameters, {}, cohort(), LocalTraining(learning_rate=0.1, epochs=2), seed=1)
    assert not torch.allclose(other.deltas["output.weight"], found["sequential"], atol=1e-5)


def test_batch_norm_shares_scale_and_shift_and_nothing_else() -> None:
    module = learner_of(hidden=8, norm="before-activation")
    assert dict(module.named_buffers()).keys() <= {n for n, _ in module.named_buffers() if "accuracy" in n}
    assert [name for name in module.public_parameters() if name.endswith(("running_mean", "running_var"))] == []
    assert "body.7.weight" in module.public_parameters()


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("two-convolutions", (1, 28, 28)),
        ("two-convolutions", (1, 8, 8)),
        ("three-modules", (3, 32, 32)),
        ("four-modules", (1, 48, 48)),
        ("resnet18", (3, 32, 32)),
        ("vgg16", (3, 32, 32)),
        ("mlp", (1, 12, 12)),
    ],
)
def test_networks_end_in_the_layer_that_is_attacked(name: NetworkName, shape: tuple[int, int, int]) -> None:
    built, again = (network(ClassifierOptions(name=name), shape=shape, classes=7) for _ in range(2))
    images = torch.rand(2, *shape, generator=generator_for(0, "images"))
    with torch.no_grad():
        logits = built(images)
        features = built.body(images)
    assert features.shape == (2, built.output.in_features)
    torch.testing.assert_close(logits, features @ built.output.weight.T + built.output.bias)
    assert all(torch.equal(a, b) for a, b in zip(built.parameters(), again.parameters(), strict=True))


def test_the_standard_head_of_vgg16_has_two_wide_layers_with_dropouts_of_their_own() -> None:
    options = ClassifierOptions(name="vgg16", head="standard")
    shapes = classifier_shapes(options, image_shape=(3, 32, 32), classes=10)
    wide = [shape for name, shape in shapes.items() if name.endswith("weight") and len(shape) == 2]
    assert wide == [(4096, 512), (4096, 4096), (10, 4096)]
    twice = torch.nn.Sequential(Dropout(0.5), torch.nn.Identity(), Dropout(0.5))
    draw_noise(twice, torch.arange(50))
    ones = torch.ones(50, 40)
    assert abs(float((twice(ones) == 4).double().mean()) - 0.25) < 0.03


def test_an_mlp_has_the_hidden_layers_and_weights_it_is_asked_for() -> None:
    options = ClassifierOptions(name="mlp", hidden=300, hidden_layers=2, weights="normal")
    shapes = classifier_shapes(options, image_shape=SHAPE, classes=10)
    assert [shape for shape in shapes.values() if len(shape) == 2] == [(300, 144), (300, 300), (10, 300)]
    built = network(options)
    assert abs(float(built.get_parameter("body.1.weight").detach().std()) - 0.5) < 0.01
    assert float(built.output.weight.detach().abs().max()) <= (6 / 310) ** 0.5
    assert not any(value.any() for name, value in built.named_parameters() if name.endswith("bias"))
    standard = network(ClassifierOptions(name="mlp"))
    assert 0.9 / 12 < float(standard.get_parameter("body.1.weight").detach().abs().max()) <= 1 / 12
    with pytest.raises(InputError, match="norm"):
        network(ClassifierOptions(name="mlp", norm="before-activation"))


def test_the_slope_of_a_leaky_relu_is_an_option() -> None:
    for slope in (0.01, 0.1):
        options = ClassifierOptions(activation="leaky-relu", slope=slope, hidden=4, channels=1)
        built = network(options)
        assert {layer.negative_slope for layer in built.modules() if isinstance(layer, torch.nn.LeakyReLU)} == {slope}
    assert ClassifierOptions().slope == torch.nn.LeakyReLU().negative_slope


def test_images_too_small_to_pool_are_refused() -> None:
    with pytest.raises(InputError, match="four-modules"):
        network(ClassifierOptions(name="four-modules"), shape=(1, 8, 8))


@pytest.mark.parametrize("options", [{"hidden": 0}, {"activation": "none"}, {"dropout": 1.0}])
def test_impossible_networks_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InputError, match="network"):
        ClassifierOptions(**options)  # type: ignore[arg-type]


def test_the_learner_trains_as_the_clients_do() -> None:
    """Given a client's own images and order of mini-batches, the simulation is the client."""
    (view,), _ = views(LocalTraining(optimizer="sgd", learning_rate=0.05))
    data = source()
    part = data.cohort(0)
    pool, labels = part.examples["image"].flatten(0, 1), part.examples["label"].flatten()
    own = torch.arange(len(labels)).reshape(part.mask.shape)
    full_batch = learner(LocalTraining(optimizer="sgd", learning_rate=0.05))
    deltas = full_batch.simulate_examples(view.model, pool, labels, own, generator=generator_for(0, "order"))
    for name, value in deltas.items():
        torch.testing.assert_close(value, view.deltas[name], atol=1e-6, rtol=1e-4)


def test_outputs_are_those_of_each_model() -> None:
    (view,), _ = views()
    images = view.auxiliary["images"][:5]
    models = {name: torch.stack([value, value + view.deltas[name][0]]) for name, value in view.model.items()}
    hidden, logits = network_outputs(learner(), models, images)
    module = FederatedClassifier(num_classes=10, image_shape=SHAPE, network=learner().network)
    for row in (0, 1):
        module.load_state_dict({name: value[row] for name, value in models.items()}, strict=False)
        with torch.no_grad():
            torch.testing.assert_close(logits[row], module(images))
            torch.testing.assert_close(hidden[row], module.body(images))


@pytest.mark.integration
def test_a_recording_holds_counts_as_truth_and_the_servers_own_images(tmp_path: Path) -> None:
    split = ClientSplit(scheme="composition", composition="MNIST", examples_per_client=24)
    data = Digits(split=split, auxiliary_per_class=4)
    local = LocalTraining(optimizer="adadelta", learning_rate=1.0, eps=1e-6, batch_size=8)
    module = FederatedClassifier(network=ClassifierOptions(hidden=8), local=local)
    recorder = DeltaRecorder(directory=str(tmp_path / "deltas"))
    quiet_trainer(2, tmp_path, recorder).fit(module, datamodule=data)
    recording = Recording(tmp_path / "deltas")
    known = learner_from(recording.manifest.learner)
    seen = list(recording.views(learner=known, history=True))
    assert [len(view.earlier) for view in seen] == [0, 1]
    for view in seen:
        order = recording.truth(view)["clients"]
        assert torch.equal(recording.truth(view)["class_counts"], data.class_counts()[order])
        torch.testing.assert_close(view.auxiliary["images"], data.auxiliary()["image"])
        assert torch.equal(view.auxiliary["labels"], data.auxiliary()["label"])
    assert torch.equal(seen[1].earlier[0].pseudonyms, seen[1].pseudonyms)
    first = dict(zip(seen[0].pseudonyms.tolist(), seen[0].deltas["output.bias"], strict=True))
    expected = torch.stack([first[p] for p in seen[1].pseudonyms.tolist()])
    assert torch.equal(seen[1].earlier[0].deltas["output.bias"], expected)
    held = tmp_path / "deltas" / "auxiliary.safetensors"
    content = held.read_bytes()
    held.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match="checksum"):
        Recording(tmp_path / "deltas")
    held.unlink()
    with pytest.raises(InputError, match="auxiliary"):
        Recording(tmp_path / "deltas")


@pytest.mark.integration
def test_a_seeded_training_is_reproducible_and_learns(tmp_path: Path) -> None:
    split = ClientSplit(scheme="iid", clients=4)
    local = LocalTraining(optimizer="sgd", learning_rate=0.3, batch_size=10)
    made = []
    for run in range(2):
        data = Digits(split=split, auxiliary_per_class=2)
        module = FederatedClassifier(local=local, seed=3)
        quiet_trainer(4, tmp_path / str(run), DeltaRecorder()).fit(module, datamodule=data)
        made.append(module)
    for one, other in zip(made[0].parameters(), made[1].parameters(), strict=True):
        assert torch.equal(one, other)
    batch = next(iter(data.val_dataloader()))
    assert float(made[0].update_metrics(batch)["val/accuracy"].compute()) > 0.5


def test_a_task_leaves_its_template_alone() -> None:
    task = ModuleAlgorithm(local=LocalTraining(), module=network(ClassifierOptions()))
    before = [value.clone() for value in task.template.parameters()]
    local = LocalTraining(learning_rate=0.1, batch_size=4)
    parameters = {name: value.detach() for name, value in task.template.named_parameters()}
    train_clients(task, parameters, {}, cohort(), local, seed=0)
    assert all(torch.equal(a, b) for a, b in zip(before, task.template.parameters(), strict=True))


def test_a_recording_declares_private_local_training_and_a_simulation_draws_noise_of_its_own() -> None:
    local = LocalTraining(learning_rate=0.1, batch_size=3, example_clip=1.0, noise_multiplier=2.0)
    module = FederatedClassifier(num_classes=10, image_shape=SHAPE, network=ClassifierOptions(hidden=4), local=local)
    description = module.learner_description()
    assert description is not None
    assert description["arguments"]["local"]["noise_multiplier"] == 2.0
    simulator = learner_from(description)
    assert isinstance(simulator, ImageClassifierAlgorithm)
    assert simulator.local == local
    pool = torch.rand(6, *SHAPE, generator=generator_for(0, "pool")), torch.arange(6)
    held = torch.arange(6).expand(2, -1)
    model = module.public_parameters()
    first, second = (
        made.simulate_examples(model, *pool, held, generator=generator_for(0, "order"))["output.bias"]
        for made in (simulator, simulator.without_noise())
    )
    assert not torch.equal(first[0], first[1])
    assert float((first - second).abs().max()) > 0.05
    sent = train_clients(module.algorithm, model, {}, cohort((6,)), local, seed=0, noise_key=b"secret" * 4).deltas
    assert not torch.equal(sent["output.bias"][0], first[0])


def test_a_network_that_standardises_gives_what_standardised_images_give_one_that_does_not() -> None:
    plain, own = (network(ClassifierOptions(name="mlp", hidden=5, standardise=given)) for given in (None, (0.2, 0.5)))
    images = torch.rand(6, *SHAPE)
    torch.testing.assert_close(own(images), plain((images - 0.2) / 0.5))
    with pytest.raises(InputError, match="standard"):
        ClassifierOptions(standardise=(0.2, 0.0))
