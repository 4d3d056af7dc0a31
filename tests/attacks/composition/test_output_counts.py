"""Counts from the last layer are exact on a leaky toy, and say nothing of a client whose update they are not."""

import dataclasses
from pathlib import Path

import pytest
import torch

from bench.hostile_federations import Federation
from fedleak.attacks.composition.baselines import EqualCounts
from fedleak.attacks.composition.counts import CountEstimate
from fedleak.attacks.composition.ilrg import ILRG
from fedleak.attacks.composition.output_counts import OutputCounts, _mean_step, class_counts
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.errors import ViewError
from fedleak.core.release import Release
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording
from tests.attacks.runs import of_noise, of_others, run, with_noise
from tests.composition_toys import SGD, views

STEP = LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=None)
TWO_STEPS = LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=None, epochs=2)
OURS = [OutputCounts(), OutputCounts(images=False)]


def toy(local: LocalTraining = STEP) -> tuple[RoundView, torch.Tensor]:
    (view,), shares = views(local)
    return view, (shares * view.example_counts[:, None]).round().long()


def scored(attack: OutputCounts | ILRG, view: RoundView, counts: torch.Tensor) -> dict[str, float]:
    found = run(attack, view, CountEstimate)
    return {name: float(value.nanmean()) for name, value in found.score(view, {"class_counts": counts}).metrics.items()}


@pytest.mark.parametrize("attack", OURS, ids=lambda attack: attack.name)
def test_one_step_gives_all_counts_with_and_without_a_learner(attack: OutputCounts) -> None:
    view, counts = toy()
    for one in (view, dataclasses.replace(view, algorithm=None, auxiliary={})):
        found = scored(attack, one, counts)
        assert found["exact-classes"] == found["instance-recall"] == 1
        assert found["predicted-exact-classes"] > 0.99
    assert scored(attack, view, counts)["exact-classes"] > scored(ILRG(), view, counts)["exact-classes"] - 1e-9


def test_several_steps_give_nearly_all_counts_and_far_more_than_the_published_method() -> None:
    view, counts = toy(LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=24, epochs=2))
    found = scored(OutputCounts(images=False), view, counts)["exact-classes"]
    assert found > 0.9
    assert found > scored(ILRG(), view, counts)["exact-classes"] + 0.3


@pytest.mark.parametrize("attack", OURS, ids=lambda attack: attack.name)
def test_the_update_of_another_client_gives_the_counts_of_that_client(attack: OutputCounts) -> None:
    view, counts = toy()
    chance = float((counts.roll(1, 0) == counts).double().mean())
    assert scored(attack, of_others(view), counts)["exact-classes"] == pytest.approx(chance, abs=0.02)


@pytest.mark.parametrize("attack", OURS, ids=lambda attack: attack.name)
def test_noise_instead_of_the_update_and_a_foreign_model_give_no_counts(attack: OutputCounts) -> None:
    view, counts = toy()
    draw = generator_for(0, "noise")
    foreign = {name: torch.randn(value.shape, generator=draw) for name, value in view.model.items()}
    for wrong in (of_noise(view), dataclasses.replace(view, model=foreign)):
        assert scored(attack, wrong, counts)["exact-classes"] < 0.3


def test_permuted_classes_permute_the_counts() -> None:
    view, _ = toy()
    order = torch.randperm(10, generator=generator_for(0, "order"))
    layer = [name for name in view.deltas if name.startswith("output.")]
    moved = dataclasses.replace(
        view,
        deltas={n: v[:, order] if n in layer else v for n, v in view.deltas.items()},
        model={n: v[order] if n in layer else v for n, v in view.model.items()},
    )
    before, after = (run(OutputCounts(images=False), one, CountEstimate) for one in (view, moved))
    assert torch.equal(after.counts, before.counts[:, order])


def test_weight_decay_is_removed() -> None:
    view, counts = toy(dataclasses.replace(STEP, weight_decay=0.05))
    assert scored(OutputCounts(images=False), view, counts)["exact-classes"] == 1


def test_a_clip_that_binds_does_not_change_the_counts() -> None:
    view, counts = toy()
    norm = torch.stack([value.flatten(1).square().sum(1) for value in view.deltas.values()]).sum(0).sqrt()
    clip = 0.5 * float(norm.min())
    deltas = {n: v * (clip / norm).reshape(-1, *[1] * (v.dim() - 1)) for n, v in view.deltas.items()}
    clipped = dataclasses.replace(view, deltas=deltas, releases=(Release(clip=clip, parameters=tuple(deltas)),))
    assert scored(OutputCounts(images=False), clipped, counts)["exact-classes"] == 1
    loose = dataclasses.replace(view, releases=(Release(clip=2 * float(norm.max()), parameters=tuple(deltas)),))
    assert scored(OutputCounts(images=False), loose, counts)["exact-classes"] == 1


@pytest.mark.parametrize("scale", [3e-4, 3e-3])
def test_noise_of_the_clients_leaves_the_predicted_share_of_counts(scale: float) -> None:
    view, counts = toy()
    found = [scored(OutputCounts(), with_noise(view, scale, seed), counts) for seed in range(5)]
    measured, predicted = (sum(one[name] for one in found) / 5 for name in ("exact-classes", "predicted-exact-classes"))
    assert measured == pytest.approx(predicted, abs=0.12)
    assert 0.05 < measured < 0.95


def test_counts_for_other_attacks_sum_to_the_examples() -> None:
    view, counts = toy()
    assert torch.equal(class_counts(view, generator=generator_for(0, "attack")), counts)


def test_steps_of_adam_are_taken_for_sgd_and_the_estimate_says_so() -> None:
    view, counts = toy(LocalTraining(optimizer="adam", learning_rate=0.01, batch_size=24))
    found = run(OutputCounts(), view, CountEstimate)
    assert "adam" in found.assumes
    scores = found.score(view, {"class_counts": counts})
    assert "adam" in str(scores.details[0]["assumes"])
    guessed = run(EqualCounts(), view, CountEstimate).score(view, {"class_counts": counts}).metrics["l1"].mean()
    others = run(OutputCounts(), of_others(view), CountEstimate).score(view, {"class_counts": counts}).metrics["l1"]
    assert float(scores.metrics["l1"].mean()) < 0.8 * float(guessed)
    assert float(others.mean()) > 0.8 * float(guessed)
    assert not run(OutputCounts(), toy()[0], CountEstimate).assumes


def test_attacks_that_need_plain_steps_refuse_adam() -> None:
    view, _ = toy(LocalTraining(optimizer="adam", learning_rate=0.01, batch_size=None))
    with pytest.raises(ViewError, match="scales"):
        run(ILRG(), view, CountEstimate)
    with pytest.raises(ViewError, match="scales"):
        class_counts(view, generator=generator_for(0, "attack"))


def test_rounds_average_the_counts() -> None:
    rounds, shares = views(STEP, rounds=2)
    found = run(OutputCounts(images=False, rounds="all"), rounds[1], CountEstimate)
    assert torch.equal(found.counts, (shares * rounds[1].example_counts[:, None]).round().long())


def test_the_baseline_has_equal_counts() -> None:
    view, counts = toy()
    assert run(EqualCounts(), view, CountEstimate).counts.tolist() == [[12] * 10] * 10
    assert scored(OutputCounts(), view, counts)["exact-classes"] > float((counts == 12).double().mean())


@pytest.mark.parametrize(("local", "expected"), [(STEP, 0.0), (SGD, 0.5), (TWO_STEPS, 0.5)])
def test_predictions_of_a_single_step_are_those_of_the_global_model(local: LocalTraining, expected: float) -> None:
    view, _ = toy(local)
    assert set(_mean_step(view).tolist()) == {expected}
    assert set(_mean_step(dataclasses.replace(view, algorithm=None)).tolist()) == {0.5}
    assert set(_mean_step(with_noise(view, 0.01)).tolist()) == {0.0}


def test_linear_shares_have_no_bias_where_the_counts_are_not_certain() -> None:
    """Over many draws of the noise, their mean is that without noise, and their deviation is the one that is given."""
    view, counts = toy()
    true = counts / counts.sum(1, keepdim=True)
    draws = [with_noise(view, 0.002, seed) for seed in range(40)]
    found = [OutputCounts().linear_shares(one, generator=generator_for(0, "attack")) for one in draws]
    shares, deviation = torch.stack([one for one, _ in found]), torch.stack([one for _, one in found]).mean(0)
    plain, _ = OutputCounts().linear_shares(view, generator=generator_for(0, "attack"))
    assert float((plain - true).abs().max()) < 0.02
    off = (shares.mean(0) - plain) / (deviation / 40**0.5)
    assert float(off.abs().max()) < 5
    assert float((shares - plain).square().mean().sqrt() / deviation.square().mean().sqrt()) == pytest.approx(
        1, abs=0.2
    )


@pytest.mark.parametrize("factor", [-1.0, 0.5, 2.0, 1.3])
def test_an_update_of_another_size_refutes_the_prediction(factor: float) -> None:
    view, counts = toy()
    other = dataclasses.replace(view, deltas={name: factor * value for name, value in view.deltas.items()})
    assert "predicted-exact-classes" in scored(OutputCounts(), view, counts)
    assert "predicted-exact-classes" not in scored(OutputCounts(), other, counts)


def test_a_step_size_that_is_fitted_to_whole_numbers_of_noise_predicts_nothing() -> None:
    view, counts = toy()
    unknown = dataclasses.replace(view, algorithm=None)
    generator = generator_for(0, "noise")
    noise = {n: v.std() * torch.randn(v.shape, generator=generator) for n, v in view.deltas.items()}
    assert scored(OutputCounts(), unknown, counts)["predicted-exact-classes"] > 0.9
    assert "predicted-exact-classes" not in scored(OutputCounts(), dataclasses.replace(unknown, deltas=noise), counts)


def test_what_many_steps_leave_unknown_is_predicted(tmp_path: Path) -> None:
    """Of clients that move far, the mean step is known less well than the predictions at a model are."""
    federation = Federation(momentum=0.9, epochs=3, batch_size=10, rounds=1, candidates=False)
    federation.record(tmp_path / "deltas")
    recording = Recording(tmp_path / "deltas")
    view = next(recording.views(learner=recorded_learner(recording)))
    estimate = OutputCounts(images=False)(view, generator=torch.Generator())
    metrics = estimate.score(view, recording.truth(view)).metrics
    predicted, exact = (float(metrics[name].mean()) for name in ("predicted-exact-classes", "exact-classes"))
    assert predicted == pytest.approx(exact, abs=0.15)
