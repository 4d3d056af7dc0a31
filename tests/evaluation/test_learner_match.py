"""A learner that is not what the clients ran is named, with the next thing to try; one that matches is not."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bench.hostile_federations import HONEST, HOSTILE, Federation
from fedleak.attacks.composition.closed_form import ClosedForm
from fedleak.attacks.composition.decaf import Decaf
from fedleak.attacks.composition.last_layer import LastLayerCounts
from fedleak.client.algorithm import DescentAlgorithm
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.release import Release
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.evaluation.learner_check import learner_free_is_better
from fedleak.evaluation.learner_match import LearnerMatch, learner_match
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import AttackInfo, concat, score_table
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording
from tests.composition_toys import views
from tests.toys import leaky_view

ONE_STEP = LocalTraining(optimizer="sgd", learning_rate=0.1)


def compared(view: RoundView) -> LearnerMatch:
    match = learner_match(view, generator=generator_for(0, "match"))
    assert isinstance(match, LearnerMatch)
    return match


def with_rate(view: RoundView, factor: float) -> RoundView:
    learner = view.algorithm
    assert isinstance(learner, DescentAlgorithm)
    return declaring(view, learning_rate=factor * learner.local.learning_rate)


def declaring(view: RoundView, **local: object) -> RoundView:
    learner = view.algorithm
    assert isinstance(learner, DescentAlgorithm)
    local_training = dataclasses.replace(learner.local, **local)  # type: ignore[arg-type]
    return dataclasses.replace(view, algorithm=dataclasses.replace(learner, local=local_training))


def changed(view: RoundView, change: Callable[[str, Tensor], Tensor]) -> RoundView:
    return dataclasses.replace(view, deltas={name: change(name, value) for name, value in view.deltas.items()})


@pytest.mark.integration
@pytest.mark.parametrize(
    "local",
    [
        LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=40),
        ONE_STEP,
        LocalTraining(optimizer="sgd", learning_rate=0.05, batch_size=60, momentum=0.9),
        LocalTraining(optimizer="sgd", learning_rate=0.05, batch_size=60, weight_decay=0.05),
        LocalTraining(optimizer="adam", learning_rate=0.005, batch_size=40),
    ],
)
def test_clients_that_run_the_learner_do(local: LocalTraining) -> None:
    (view,), _ = views(local)
    for honest in (view, changed(view, lambda _, value: value.half().float())):
        assert compared(honest).right, compared(honest).finding


FAR_OFF = [pytest.param(factor, marks=pytest.mark.integration) for factor in (0.01, 0.1, 3.0, 100.0)]


@pytest.mark.parametrize("factor", [0.5, 2.0, *FAR_OFF])
def test_a_learning_rate_that_is_off_is_found(factor: float) -> None:
    (view,), _ = views()
    assert "learning rate" in compared(with_rate(view, factor)).finding


def test_the_ratio_of_a_step_is_that_of_the_learning_rates() -> None:
    (view,), _ = views(ONE_STEP)
    assert compared(with_rate(view, 0.01)).ratio == pytest.approx(0.01 * compared(view).ratio, rel=1e-3)


def noisy(name: str, value: Tensor) -> Tensor:
    return value.std() * torch.randn(value.shape, generator=generator_for(1, name))


def clipped(view: RoundView) -> RoundView:
    flat = torch.cat([value.flatten(1) for value in view.deltas.values()], dim=1).norm(dim=1)
    factors = 0.3 * flat.min() / flat
    return changed(view, lambda _, value: value * factors.reshape(-1, *[1] * (value.dim() - 1)))


def largest(name: str, value: Tensor) -> Tensor:
    least = value.abs().flatten(1).quantile(0.95, dim=1)
    return value * (value.abs() >= least.reshape(-1, *[1] * (value.dim() - 1)))


WRONG: dict[str, tuple[Callable[[RoundView], RoundView], str]] = {
    "negated": (lambda view: changed(view, lambda _, value: -value), "local minus global"),
    "weights": (lambda view: changed(view, lambda name, value: value + view.model[name]), "weights"),
    "noise": (lambda view: changed(view, noisy), "noise"),
    "signs": (lambda view: changed(view, lambda _, value: 1e-3 * value.sign()), "signs"),
    "top": (lambda view: changed(view, largest), "largest"),
    "clip": (clipped, "clip"),
    "sum": (lambda view: changed(view, lambda _, value: value + value.roll(1, 0)), "sums"),
    "epochs": (lambda view: declaring(view, epochs=3), "number of steps"),
    "one tensor": (lambda view: changed(view, lambda n, v: 5 * v if n == "output.bias" else v), "disagree"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_with_the_next_thing_to_try(name: str) -> None:
    (view,), _ = views(ONE_STEP)
    change, word = WRONG[name]
    assert word in compared(change(view)).finding


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("squared error", "loss"),
        ("multi-label", "loss"),
        ("class weights", "class weights"),
        ("label smoothing", "label smoothing"),
        ("FedProx hidden", "FedProx"),
        ("count x 2.5", "numbers of examples"),
        ("count / 2", "numbers of examples"),
        ("weight decay hidden", "weight decay"),
        ("gradient clip hidden", "clips"),
        ("momentum hidden", "optimizer"),
        ("Adam said SGD", "Adam"),
        ("4 bits", "rounded"),
        ("noise hidden", "noise"),
        ("noise said", "declared noise"),
    ],
)
def test_training_that_is_not_declared_is_named(name: str, word: str, tmp_path: Path) -> None:
    assert word in compared(recorded(HOSTILE[name], tmp_path)).finding


@pytest.mark.integration
@pytest.mark.parametrize("name", [name for name, one in HONEST.items() if one.declares_learner])
def test_honest_federations_are_not_called_wrong(name: str, tmp_path: Path) -> None:
    match = compared(recorded(HONEST[name], tmp_path))
    assert match.right, match.finding


def recorded(federation: Federation, folder: Path) -> RoundView:
    federation.record(folder / "deltas")
    recording = Recording(folder / "deltas")
    return next(recording.views(rounds=recording.rounds[:1], learner=recorded_learner(recording)))


def test_zero_updates_are_not_compared() -> None:
    (view,), _ = views()
    silent = changed(view, lambda _, value: torch.zeros_like(value))
    assert "zero" in str(learner_match(silent, generator=generator_for(0, "match")))


def test_noise_that_hides_lengths_is_no_mismatch_and_no_match() -> None:
    (view,), _ = views()
    release = Release(parameters=tuple(view.deltas), clip=None, noise_scale=1.0)
    sent = {name: value + torch.randn(value.shape) for name, value in view.deltas.items()}
    hidden = dataclasses.replace(with_rate(view, 0.01), deltas=sent, releases=(release,))
    assert "noise" in str(learner_match(hidden, generator=generator_for(0, "match")))


def test_declared_noise_that_is_not_there_is_found() -> None:
    (view,), _ = views()
    release = Release(parameters=tuple(view.deltas), clip=None, noise_scale=1.0)
    assert "declared noise" in compared(dataclasses.replace(view, releases=(release,))).finding


def test_clipped_updates_are_compared_with_clipped_ones() -> None:
    (view,), _ = views()
    norms = torch.stack([value.flatten(1).square().sum(1) for value in view.deltas.values()]).sum(0).sqrt()
    clip = float(norms.min()) / 10
    deltas = {n: v * (clip / norms).reshape(-1, *[1] * (v.dim() - 1)) for n, v in view.deltas.items()}
    release = Release(parameters=tuple(view.deltas), clip=clip, noise_scale=0.0)
    match = compared(dataclasses.replace(view, deltas=deltas, releases=(release,)))
    assert match.right
    assert match.ratio == pytest.approx(1, rel=0.01)


def test_without_examples_nothing_is_claimed() -> None:
    (view,), _ = views()
    assert "auxiliary" in str(learner_match(dataclasses.replace(view, auxiliary={}), generator=generator_for(0, "m")))


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (0.01, False)])
def test_clients_of_a_recommender_need_no_examples_of_the_server(factor: float, right: bool) -> None:
    view, _ = leaky_view()
    assert compared(with_rate(view, factor)).right == right


def evaluation_of(values: dict[str, tuple[str, float]], metric: str = "l1") -> Evaluation:
    """Attacks by name, with their role and the values of eight clients about a mean."""
    spread = torch.linspace(-0.02, 0.02, 8)
    tables = [
        score_table(name, {metric: (mean + spread).numpy()}, setting={"data": "d"}, seed=0, victims=range(8))
        for name, (_, mean) in values.items()
    ]
    lines = {
        name: AttackInfo(role=role, family="composition", tells="shares")  # type: ignore[arg-type]
        for name, (role, _) in values.items()
    }
    return Evaluation(scores=concat(tables), lines=lines)


@pytest.mark.parametrize(("published", "shown"), [(0.1, True), (0.45, False), (0.9, False)])
def test_an_attack_that_uses_all_of_a_right_learner_is_not_much_weaker(published: float, shown: bool) -> None:
    evaluation = evaluation_of({"closed-form": ("ours", 0.5), "decaf": ("published", published)})
    finding = learner_free_is_better(evaluation, [ClosedForm(), Decaf(), LastLayerCounts()])
    assert bool(finding) == shown
    assert ("decaf" in finding) == shown


def test_attacks_without_the_learner_are_compared_with_none() -> None:
    evaluation = evaluation_of({"last-layer-counts": ("ours", 0.5), "decaf": ("published", 0.1)})
    assert not learner_free_is_better(evaluation, [LastLayerCounts(), Decaf()])


def test_several_values_of_one_client_are_averaged() -> None:
    evaluation = evaluation_of({"closed-form": ("ours", 0.5), "decaf": ("published", 0.1)})
    evaluation.scores = concat([evaluation.scores, evaluation.scores])
    assert "decaf" in learner_free_is_better(evaluation, [ClosedForm(), Decaf()])
