"""Class shares from sums over rounds: all at full rank, at chance where sums or participants are others'."""

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

from fedleak.attacks.sums_over_rounds.received_sums import Participants
from fedleak.attacks.sums_over_rounds.rounds_to_reveal import RoundsToReveal, bounded
from fedleak.attacks.sums_over_rounds.tracking import Posterior, rank
from fedleak.core.seeding import generator_for
from fedleak.evaluation.message_selection import client_truth
from fedleak.recordings.control import ControlRecording
from fedleak.recordings.recording import Recording
from fedleak.training.schedule import Schedule
from tests.sum_toys import digits, history_of, record, scored, sums

AFTER = (4, 8, 12, 14)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return record(tmp_path_factory.mktemp("sums"), digits(), rounds=16, defenses=[sums(4)])


def chance(recording: Recording) -> float:
    """L1 of the mean shares of all clients."""
    counts = client_truth(recording, history_of(recording), ["class_counts"])["class_counts"].double()
    shares = counts / counts.sum(1, keepdim=True)
    return float((shares - shares.mean(0)).abs().sum(1).mean())


def rounds_to_full_rank(recording: Recording) -> int:
    view = history_of(recording)
    participants = Participants.of(view)
    taking = [participants.matrix(part.participants[:1]) for part in view.each_round() if part.participants is not None]
    return next(n for n in range(1, len(taking) + 1) if rank(taking[:n]) == len(participants.clients))


@pytest.mark.integration
def test_shares_are_found_once_the_rank_is_full(recording: Recording) -> None:
    full = rounds_to_full_rank(recording)
    assert full < 16
    after, metrics = scored(RoundsToReveal(after=(full,)), recording)
    assert after == [full, 16]
    assert float(metrics["l1"].mean(1).max()) <= 0.1
    assert float(metrics["exact"].mean(1).min()) >= 0.9
    assert float(metrics["coverage"].mean(1).min()) >= 0.9
    assert bool((metrics["rounds-to-reveal"][-1] <= full).all())
    assert bool((metrics["predicted-rounds-to-reveal"][-1] <= full).all())
    assert bool((metrics["revealed"] == 1).all())


@pytest.mark.integration
def test_before_the_rank_is_full_less_is_known_and_the_intervals_say_so(recording: Recording) -> None:
    _, metrics = scored(RoundsToReveal(after=AFTER), recording)
    errors = metrics["l1"].mean(1)
    assert bool((errors.diff() <= 1e-9).all())
    assert float(errors[0]) > 0.3
    assert float(metrics["coverage"][0].mean()) > 0.85
    assert bool((metrics["interval"].mean(1).diff() <= 1e-9).all())


@pytest.mark.integration
def test_other_participants_and_other_sums_are_at_chance(recording: Recording) -> None:
    shuffled = functools.partial(RoundsToReveal, shuffled=True, after=AFTER)
    controls = [ControlRecording(recording.directory, control) for control in ("others", "noise")]
    for attack, own in ((shuffled(), recording), *((RoundsToReveal(after=AFTER), one) for one in controls)):
        _, metrics = scored(attack, own)
        assert float(metrics["l1"].mean(1).min()) > 0.8 * chance(recording)
        assert float(metrics["exact"].max()) == 0


@pytest.mark.integration
def test_fixed_groups_hide_the_clients_from_sums(tmp_path: Path) -> None:
    data = digits(schedule=Schedule(kind="fixed-groups"))
    recording = record(tmp_path, data, rounds=6, defenses=[sums(4)])
    _, metrics = scored(RoundsToReveal(after=(3,)), recording)
    assert float(metrics["l1"].min(1).values.max()) > 0.1
    torch.testing.assert_close(metrics["l1"][0], metrics["l1"][1], atol=0.02, rtol=0)
    assert not bool(metrics["revealed"].any())
    assert {"rounds-to-reveal", "predicted-rounds-to-reveal"}.isdisjoint(metrics)


@pytest.mark.integration
def test_a_repeated_run_gives_the_same(recording: Recording) -> None:
    view: Any = history_of(recording)
    one, two = (RoundsToReveal(after=(12,))(view, generator=generator_for(0, "attack")) for _ in range(2))
    assert torch.equal(one.shares, two.shares)  # type: ignore[attr-defined]
    assert len(view.shared) == 1


def test_shares_are_not_negative_and_sum_to_one_and_no_interval_has_width_zero() -> None:
    mean = torch.tensor([[0.501, 0.499, 0.0], [0.9, 0.3, -0.2]]).double()
    covariance = torch.diag(torch.tensor([1e-6, 1.0])).double()
    shares, half = bounded(Posterior(mean, covariance, torch.full((3,), 0.2).double()), torch.tensor([10, 10]))
    torch.testing.assert_close(shares, torch.tensor([[0.5, 0.5, 0.0], [0.75, 0.25, 0.0]]).double())
    torch.testing.assert_close(half[0], torch.full((3,), 1.959964e-3 * 0.2**0.5).double())
    torch.testing.assert_close(half[1], torch.full((3,), 1.959964 * 0.2**0.5).double())
