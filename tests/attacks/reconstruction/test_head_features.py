"""Features of single records from the update of a head on a frozen network, and images that have them."""

import dataclasses

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction.baselines import MeanRecord
from fedleak.attacks.reconstruction.estimates import ReconstructionEstimate
from fedleak.attacks.reconstruction.gradient_matching import InvertingGradients
from fedleak.attacks.reconstruction.head_features import (
    HeadFeatures,
    HeadFeaturesEstimate,
    HeadImages,
    MeanFeatures,
    UnrelatedHeadFeatures,
)
from fedleak.attacks.reconstruction.linear_inversion import LinearInversion
from fedleak.attacks.reconstruction.toy import toy
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.frozen_backbone import FrozenBackboneAlgorithm
from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.view import RoundView
from tests.attacks.runs import run

VIEW, TRUTH = toy("head")


def scores(attack: Attack, view: RoundView = VIEW) -> dict[str, float]:
    estimate = attack(view, generator=torch.Generator().manual_seed(0))
    return {name: float(values.double().nanmean()) for name, values in estimate.score(VIEW, TRUTH).metrics.items()}


def head_view(hidden: int, each: int, *, sparse: bool = True, classes: int = 7) -> tuple[RoundView, Tensor]:
    """Two clients with drawn features of their own, which stand in for records, and these ``(2, each, 64)``."""
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(2 * each, 64, generator=generator) - 0.5
    if sparse:
        features = (features + 0.5) * (torch.rand(features.shape, generator=generator) < 0.4)
    local = LocalTraining(optimizer="sgd", learning_rate=0.1)
    algorithm = FrozenBackboneAlgorithm(backbone="drawn", hidden=hidden, num_classes=classes, local=local)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = {name: torch.randn_like(value) / value.shape[-1] ** 0.5 for name, value in _parameters(algorithm)}
    labels = torch.randint(classes, (2 * each,), generator=generator)
    examples = torch.arange(2 * each).reshape(2, each)
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(2),
        example_counts=torch.full((2,), each),
        deltas=algorithm.simulate_examples(model, features, labels, examples, generator=generator),
        model=model,
        algorithm=algorithm,
        auxiliary={},
    )
    return view, features.reshape(2, each, 64)


def _parameters(algorithm: FrozenBackboneAlgorithm) -> list[tuple[str, Tensor]]:
    return [(name, value.detach()) for name, value in algorithm.template.named_parameters()]


def share(view: RoundView, features: Tensor) -> float:
    """Share of the features that are inferred to a thousandth; what is called certain must be one of them."""
    estimate = HeadFeatures()(view, generator=torch.Generator().manual_seed(0))
    assert isinstance(estimate, HeadFeaturesEstimate)
    exact = 0
    for v, of_client in enumerate(features.double()):
        guesses = estimate.features[v, : int(estimate.count[v])]
        distances = torch.cdist(guesses, of_client) / of_client.norm(dim=1)
        assert len(guesses) == 0 or float(distances.amin(1).max()) < 1e-3
        if len(guesses):
            exact += int((distances.amin(0) < 1e-3).sum())
    return exact / features.shape[0] / features.shape[1]


def test_features_are_exact_and_certain_and_identify() -> None:
    values = scores(HeadFeatures())
    assert values["exact-features"] == values["certified-features"] == values["identified-features"] == 1
    assert values["false-features"] == 0
    assert values["labels-of-features"] == 1
    assert values["identified-features-by-chance"] < 0.2


def test_another_clients_update_noise_and_another_backbone_give_nothing() -> None:
    assert scores(UnrelatedHeadFeatures())["exact-features"] == 0
    assert scores(MeanFeatures())["exact-features"] == 0
    draws = torch.Generator().manual_seed(0)
    noise = {name: torch.randn(value.shape, generator=draws) * value.std() for name, value in VIEW.deltas.items()}
    assert scores(HeadFeatures(failures=3), dataclasses.replace(VIEW, deltas=noise))["certified-features"] == 0
    # The features are those of the clients' backbone: with another one, no image has them.
    assert isinstance(VIEW.algorithm, FrozenBackboneAlgorithm)
    other = dataclasses.replace(VIEW, algorithm=dataclasses.replace(VIEW.algorithm, base_seed=1))
    estimate = HeadFeatures()(VIEW, generator=torch.Generator().manual_seed(0))
    metrics = estimate.score(other, TRUTH).metrics
    assert float(metrics["exact-features"].max()) == 0
    assert float(metrics["false-features"].min()) > 0


def test_a_linear_head_shows_at_most_one_record_less_than_classes() -> None:
    assert share(*head_view(0, 1)) == 1
    assert share(*head_view(0, 4)) == 1
    # Seven records make six mixtures.
    assert share(*head_view(0, 7)) == 0


@pytest.mark.integration
def test_a_hidden_layer_shows_more_records_than_classes_also_of_features_without_zeros() -> None:
    assert share(*head_view(64, 12)) == 1
    assert share(*head_view(96, 10, sparse=False)) == 1


def test_images_are_nearer_in_features_than_the_mean_image() -> None:
    assert isinstance(VIEW.algorithm, FrozenBackboneAlgorithm)
    algorithm = VIEW.algorithm
    originals = algorithm.features_of(TRUTH["records"])
    gaps = []
    for attack in (HeadImages(max_iter=60), MeanRecord()):
        estimate = run(attack, VIEW, ReconstructionEstimate)
        found = algorithm.features_of(estimate.records)
        gaps.append(float(torch.cdist(found, originals).amin(1).mean()))
    assert gaps[0] < 0.5 * gaps[1]


@pytest.mark.parametrize("attack", [InvertingGradients(max_iter=1), LinearInversion()])
def test_attacks_on_networks_of_records_refuse_a_head(attack: Attack) -> None:
    with pytest.raises(ViewError, match="head-features"):
        attack(VIEW, generator=torch.Generator().manual_seed(0))


def test_several_steps_are_refused() -> None:
    assert isinstance(VIEW.algorithm, FrozenBackboneAlgorithm)
    local = LocalTraining(optimizer="sgd", learning_rate=0.1, epochs=2)
    view = dataclasses.replace(VIEW, algorithm=dataclasses.replace(VIEW.algorithm, local=local))
    with pytest.raises(ViewError, match="one step"):
        HeadFeatures()(view, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("undeclared", ["bfloat16", "float16", "noise 1e-4", "noise 1e-5"])
def test_what_nobody_declared_makes_nothing_false_certain(undeclared: str, sparse: bool) -> None:
    view, features = head_view(64, 5, sparse=sparse)
    generator = torch.Generator().manual_seed(0)
    deltas = {}
    for name, change in view.deltas.items():
        if undeclared.startswith("noise"):
            size = float(undeclared.partition(" ")[2]) * change.std()
            deltas[name] = change + size * torch.randn(change.shape, generator=generator)
        else:
            deltas[name] = change.to(getattr(torch, undeclared)).to(change.dtype)
    estimate = run(HeadFeatures(), dataclasses.replace(view, deltas=deltas), HeadFeaturesEstimate)
    assert bool((estimate.count > 0).all())
    for guesses, certified, originals in zip(estimate.features, estimate.certified, features.double(), strict=True):
        distances = torch.cdist(guesses, originals) / originals.norm(dim=1)
        assert not bool((certified & (distances.amin(1) > 1e-3)).any())
    if undeclared != "noise 1e-5":
        assert not bool(estimate.certified.any())


def test_exact_changes_make_all_features_certain() -> None:
    view, _ = head_view(64, 5)
    assert bool(run(HeadFeatures(), view, HeadFeaturesEstimate).certified.all())
