"""The joint fit on trainings: exact after one step, flagged duplicates, its noise, its sketch and its limits."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch

from fedleak.attacks.record_membership import CandidateFit, FedMIACosine, GradientCosine, RecordLoss
from fedleak.attacks.record_membership.candidate_fit import JointFitAttack
from fedleak.attacks.record_membership.effects import AdamScales
from fedleak.attacks.record_membership.estimates import RecordMembershipEstimate
from fedleak.attacks.record_membership.pool import PoolAttack, ServerPool
from fedleak.attacks.source.source_inference import CandidateSource, SmallestLoss
from fedleak.client.binary_classifier import BinaryClassifierAlgorithm
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.nets.classifiers import build_classifier
from fedleak.client.record_losses import record_gradients, weighted_gradient
from fedleak.core.errors import ViewError
from fedleak.core.history import History
from fedleak.core.release import Release
from fedleak.core.seeding import generator_for
from fedleak.core.view import CANDIDATE_LABELS, CANDIDATES, RoundView
from tests.attacks.runs import of_others, run
from tests.membership_toys import CLIENTS, NETWORK, ONE_EPOCH, SHAPE, learner, scored, several_rounds, toy


def test_one_step_is_exact() -> None:
    view, truth = toy()
    for metric in ("auc", "class-auc", "tpr@0.01", "tpr@0.001", "no-false-alarm"):
        assert scored(CandidateFit(), view, truth, metric) == 1
    assert scored(CandidateSource(), view, truth) == 1


def test_outsiders_of_the_clients_own_classes_are_told_from_members() -> None:
    view, truth = toy(ONE_EPOCH)
    assert scored(CandidateFit(), view, truth, "class-auc") > 0.8


@pytest.mark.integration
def test_after_several_passes_simulated_paths_tell_more_than_the_straight_line() -> None:
    full_batches = LocalTraining(optimizer="sgd", learning_rate=0.5, epochs=20)
    straight, refined = (scored(CandidateSource(refinements=count), *toy(full_batches)) for count in (0, 2))
    assert 0.8 < straight < refined
    assert refined > 0.98


@pytest.mark.integration
@pytest.mark.parametrize(
    ("attack", "chance"), [(CandidateFit(refinements=1), 0.5), (CandidateSource(refinements=1), 1 / CLIENTS)]
)
def test_simulated_paths_are_at_chance_on_updates_of_other_records(attack: JointFitAttack, chance: float) -> None:
    several_steps = LocalTraining(optimizer="sgd", learning_rate=0.5, batch_size=10, epochs=2)
    found = [scored(attack, *toy(several_steps, seed=seed, dealt_anew=True)) for seed in range(6)]
    assert sum(found) / len(found) == pytest.approx(chance, abs=0.05)


def test_the_weighted_gradient_is_that_of_the_records() -> None:
    view, _ = toy()
    images, labels = view.auxiliary[CANDIDATES][:30], view.auxiliary[CANDIDATE_LABELS][:30].long()
    weights = torch.linspace(-0.5, 1.5, 30)
    every = record_gradients(learner(), view.model, images, labels)
    together = weighted_gradient(learner(), view.model, images, labels, weights)
    for name, value in every.items():
        torch.testing.assert_close(together[name], torch.einsum("m...,m->...", value, weights), rtol=1e-4, atol=1e-6)


def test_copies_are_flagged_and_score_alike() -> None:
    view, truth = toy()
    one = int(truth["member"][0].nonzero()[0])
    other = next(n for n in range(0, 99) if not truth["member"][:, n].any() and n % 4 == one % 4)
    images = view.auxiliary[CANDIDATES].clone()
    images[other] = images[one]
    copied = dataclasses.replace(view, auxiliary={**view.auxiliary, CANDIDATES: images})
    estimate = run(CandidateFit(), copied, RecordMembershipEstimate)
    assert estimate.duplicates.nonzero().flatten().tolist() == sorted([one, other])
    assert float(estimate.scores[0, one]) == pytest.approx(float(estimate.scores[0, other]), rel=0.01)


@pytest.mark.integration
@pytest.mark.parametrize("noise", [0.002, 0.01])
def test_the_prediction_under_declared_noise_is_what_is_measured(noise: float) -> None:
    toys = [toy(seed=seed, noise=noise) for seed in range(3)]
    measured, expected = (
        sum(scored(CandidateFit(), *one, name) for one in toys) / 3 for name in ("auc", "predicted-auc")
    )
    assert 0.52 < measured < 0.995
    assert measured == pytest.approx(expected, abs=0.04)


@pytest.mark.integration
def test_the_prediction_counts_what_rounding_hides_of_images_that_are_alike() -> None:
    toys = [toy(ONE_EPOCH, seed=seed, apart=0.1) for seed in range(4)]
    measured = sum(scored(CandidateFit(), *one) for one in toys) / 4
    predicted = torch.cat([run(CandidateFit(), view, RecordMembershipEstimate).predicted for view, _ in toys])
    assert 0.8 < measured < 0.95
    assert predicted.isfinite().float().mean() > 0.5
    assert float(predicted.nanmean()) == pytest.approx(measured, abs=0.04)


def test_nothing_is_predicted_where_rounding_hides_most_of_an_effect() -> None:
    view, truth = toy(ONE_EPOCH, apart=0.02)
    assert scored(CandidateFit(), view, truth) < 0.9
    assert run(CandidateFit(), view, RecordMembershipEstimate).predicted.isnan().all()


@pytest.mark.parametrize("changed", [lambda value: 0.1 * value, lambda value: -value], ids=["small", "negated"])
@pytest.mark.parametrize("local", [LocalTraining(optimizer="sgd", learning_rate=0.5), ONE_EPOCH], ids=["step", "epoch"])
def test_nothing_is_predicted_of_updates_that_are_not_the_learners(
    changed: Callable[[torch.Tensor], torch.Tensor], local: LocalTraining
) -> None:
    view, _ = toy(local)
    other = dataclasses.replace(view, deltas={name: changed(value) for name, value in view.deltas.items()})
    assert run(CandidateFit(), other, RecordMembershipEstimate).predicted.isnan().all()


def test_declared_noise_that_is_not_there_is_not_expected() -> None:
    view, truth = toy()
    declared = Release(noise_scale=1.0, parameters=tuple(view.deltas))
    assert scored(CandidateFit(), dataclasses.replace(view, releases=(declared,)), truth, "no-false-alarm") == 1


def test_a_clip_is_simulated() -> None:
    view, truth = toy(noise=0.001)
    lengths = torch.stack([value.flatten(1).square().sum(1) for value in view.deltas.values()]).sum(0).sqrt()
    clip = float(lengths.min()) / 4
    deltas = {name: torch.einsum("v...,v->v...", value, clip / lengths) for name, value in view.deltas.items()}
    release = Release(clip=clip, noise_scale=0.00025, parameters=tuple(deltas))
    clipped = dataclasses.replace(view, deltas=deltas, releases=(release,))
    measured = scored(CandidateFit(), clipped, truth)
    assert measured > 0.9
    assert scored(CandidateFit(), clipped, truth, "predicted-auc") == pytest.approx(measured, abs=0.05)


def test_a_sketch_of_enough_numbers_changes_little() -> None:
    view, truth = toy()
    large, small = (scored(CandidateFit(sketch=size), view, truth) for size in (800, 60))
    assert large > 0.99
    assert large > small


@pytest.mark.integration
def test_rounds_are_evenly_spaced_and_clients_are_the_senders_of_all() -> None:
    view, _ = several_rounds(5)
    read = list[int]()

    class Counted(dict):  # type: ignore[type-arg]
        def __getitem__(self, number: int) -> object:
            read.append(number)
            return super().__getitem__(number)

    watched = dataclasses.replace(view, by_round=Counted(view.by_round))
    estimate = run(CandidateFit(rounds=3, sketch=60), watched, RecordMembershipEstimate)
    assert read == [0, 2, 4]
    assert len(estimate.senders) == CLIENTS


@pytest.mark.parametrize(
    "attack",
    [CandidateFit(precision="float64"), CandidateFit(sketch=400, precision="float64"), RecordLoss(), FedMIACosine()],
)
@pytest.mark.parametrize("local", [ONE_EPOCH, LocalTraining(optimizer="sgd", learning_rate=0.5)])
def test_little_memory_changes_no_score(
    monkeypatch: pytest.MonkeyPatch, attack: PoolAttack, local: LocalTraining
) -> None:
    """Gradients by a few sums at a time, and clients one by one."""
    view, _ = toy(local)
    whole = run(attack, view, RecordMembershipEstimate).scores
    monkeypatch.setattr("fedleak.attacks.record_membership.effects._BYTES", 1)
    monkeypatch.setattr("fedleak.attacks.record_membership.effects._COLUMNS", 1000)

    def one_by_one(number: int, clients: set[int]) -> Iterator[RoundView]:
        part = view.in_round(number)
        for place in range(part.victims):
            yield part.select(torch.tensor([place]))

    parts = dataclasses.replace(view, deltas={}, read_parts=one_by_one)
    torch.testing.assert_close(run(attack, parts, RecordMembershipEstimate).scores, whole, rtol=1e-3, atol=0.02)


def test_more_pairs_of_candidates_than_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedleak.attacks.record_membership.candidate_fit.memory_bound", lambda: 10**6)
    with pytest.raises(ViewError, match="compares 160 candidates with each other"):
        run(CandidateFit(), dataclasses.replace(toy()[0]), RecordMembershipEstimate)


def test_weight_decay_is_subtracted() -> None:
    decayed = LocalTraining(optimizer="sgd", learning_rate=0.5, weight_decay=0.1)
    assert scored(CandidateFit(), *toy(decayed)) == 1


def test_a_gradient_that_adam_scales_is_fitted_and_that_of_adadelta_refused() -> None:
    adam = toy(LocalTraining(optimizer="adam", learning_rate=0.01, batch_size=10))
    published = {scored(one, *adam) for one in (GradientCosine(), FedMIACosine())}
    assert scored(CandidateFit(), *adam) > max(published) + 0.05
    with pytest.raises(ViewError, match="SGD or Adam"):
        run(CandidateFit(), toy(LocalTraining(optimizer="adadelta"))[0], RecordMembershipEstimate)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("local", "least"), [({"batch_size": 5}, 0.85), ({"batch_size": 5, "updates": 10}, 0.85), ({"epochs": 5}, 0.95)]
)
def test_adam_of_several_steps_is_fitted_and_expects_no_more_than_it_finds(local: dict[str, Any], least: float) -> None:
    toys = [toy(LocalTraining(optimizer="adam", learning_rate=0.01, **local), seed=seed) for seed in range(3)]
    measured, expected = (
        sum(scored(CandidateFit(), *one, name) for one in toys) / 3 for name in ("auc", "predicted-auc")
    )
    assert measured > least
    assert expected == pytest.approx(measured, abs=0.06)


def test_the_factors_of_adam_are_what_its_steps_make_of_gradients() -> None:
    """Against the optimizer itself, on gradients of equal size: signs of their own for each of 2,000 numbers."""
    steps, betas = 7, (0.8, 0.95)
    signs = torch.randint(2, (steps, 2000), generator=generator_for(0, "signs")).double() * 2 - 1
    sizes = torch.linspace(1, 3, steps, dtype=torch.float64)[:, None]
    value = torch.zeros(2000, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([value], lr=1.0, betas=betas)
    for gradient in signs * sizes:
        value.grad = gradient.clone()
        adam.step()
    scales = AdamScales(LocalTraining(optimizer="adam", betas=betas), 1, steps)
    factors = torch.stack(scales.factors(list((signs * sizes).square())))
    torch.testing.assert_close(-(factors * signs * sizes).sum(0), value.detach(), rtol=1e-5, atol=1e-8)
    halves = torch.stack(scales.factors([torch.ones(3).double(), torch.zeros(3).double()]))
    assert bool((halves > 0).all())
    assert float(scales.factors([torch.zeros(3).double()])[0].sum()) == 0


def test_one_clipped_step_is_fitted() -> None:
    """The effects are in float64, the simulated clients that show the clip in the type of the model."""
    view, truth = toy()
    release = Release(clip=1e-3, parameters=tuple(view.deltas))
    factors = release.clip_factors({name: value.flatten(1).square().sum(1) for name, value in view.deltas.items()})
    assert factors is not None
    clipped = {name: value * factors.reshape(-1, *[1] * (value.dim() - 1)) for name, value in view.deltas.items()}
    assert scored(CandidateFit(), dataclasses.replace(view, deltas=clipped, releases=(release,)), truth) > 0.95


def test_one_logit_is_fitted_too() -> None:
    view, truth = toy()
    own = BinaryClassifierAlgorithm(network=NETWORK, image_shape=SHAPE, positive=(1, 2), local=ONE_EPOCH)
    network = build_classifier(NETWORK, image_shape=SHAPE, classes=1, generator=generator_for(0, "one logit"))
    model = {name: value.detach() for name, value in network.named_parameters()}
    held = truth["member"].nonzero()[:, 1].reshape(CLIENTS, -1)
    images, labels = view.auxiliary[CANDIDATES], view.auxiliary[CANDIDATE_LABELS]
    deltas = own.simulate_examples(model, images, labels, held, generator=generator_for(0, "order"))
    seen = dataclasses.replace(view, algorithm=own, model=model, deltas=deltas)
    assert scored(CandidateFit(), seen, truth) > 0.8
    assert scored(CandidateFit(), of_others(seen), truth) < 0.55


def in_float64(seed: int = 0, spread: float = 1.0) -> tuple[History, dict[str, torch.Tensor]]:
    """The toy trained and recorded in float64, with records that differ by a spread; the pool stays in float32."""
    view, truth = toy(seed=seed)
    images, labels = view.auxiliary[CANDIDATES], view.auxiliary[CANDIDATE_LABELS]
    alike = images[:1] + spread * (images - images[:1])
    model = {name: value.double() for name, value in view.model.items()}
    held = truth["member"].nonzero()[:, 1].reshape(CLIENTS, -1)
    deltas = learner().simulate_examples(model, alike.double(), labels, held, generator=generator_for(seed, "order"))
    return dataclasses.replace(view, model=model, deltas=deltas, auxiliary={**view.auxiliary, CANDIDATES: alike}), truth


def in_float32(view: History) -> History:
    """The same view of clients that hold models in float32: their updates are differences of rounded parameters."""
    model = {name: value.float() for name, value in view.model.items()}
    deltas = {name: (view.model[name] + delta).float() - model[name] for name, delta in view.deltas.items()}
    return dataclasses.replace(view, model=model, deltas=deltas)


def test_recording_in_float64_is_read_in_float64() -> None:
    """A pool in float32, and records that are more alike than images are."""
    view, truth = in_float64(spread=1e-3)
    assert all(value.dtype == torch.float64 for value in view.deltas.values())
    assert scored(CandidateFit(), view, truth, "no-false-alarm") == 1


@pytest.mark.parametrize("attack", [FedMIACosine(), SmallestLoss()])
def test_published_scores_run_on_recordings_in_float64(attack: PoolAttack) -> None:
    view, truth = in_float64()
    assert scored(attack, view, truth) == pytest.approx(scored(attack, in_float32(view), truth), abs=0.02)


def test_one_step_in_float32_is_fitted_by_gradients_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    view, truth = toy()
    view = dataclasses.replace(view)  # without the fits of other tests
    types = set[torch.dtype]()
    gradients = ServerPool.gradients

    def watched(pool: ServerPool, model: Mapping[str, torch.Tensor], names: tuple[str, ...]) -> Iterator[Any]:
        types.update(value.dtype for value in model.values())
        return gradients(pool, model, names)

    monkeypatch.setattr(ServerPool, "gradients", watched)
    assert scored(CandidateFit(), view, truth, "auc") == 1
    assert types == {torch.float64}
