"""Schedules of participation: sizes, turns and batches, and that the default draws what was drawn before."""

from collections.abc import Callable
from functools import partial

import pytest
import torch

from fedleak.core.errors import InputError
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.training.schedule import Schedule
from tests.toys import data

CLIENTS, SIZE = 12, 4


def drawn(schedule: Schedule, rounds: int, *, clients: int = CLIENTS, size: int = SIZE, seed: int = 0) -> torch.Tensor:
    """``(T, size)`` clients of each round."""
    draws: Callable[..., torch.Generator] = partial(generator_for, seed)
    return torch.stack([schedule.draw(size, clients, number, draws, once=PERSISTENT) for number in range(rounds)])


SCHEDULES = [Schedule(), Schedule(kind="fixed-groups"), Schedule(kind="batched", batch=2)]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda one: one.kind)
def test_rounds_have_their_size_and_ascending_clients(schedule: Schedule) -> None:
    found = drawn(schedule, 20)
    assert found.shape == (20, SIZE)
    assert bool((found.diff(dim=1) > 0).all())
    assert (int(found.min()), int(found.max())) == (0, CLIENTS - 1)
    assert torch.equal(found, drawn(schedule, 20))
    assert not torch.equal(found, drawn(schedule, 20, seed=1))


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda one: one.kind)
def test_all_clients_take_part_where_a_round_has_all(schedule: Schedule) -> None:
    assert drawn(schedule, 1, size=CLIENTS).tolist() == [list(range(CLIENTS))]


def test_uniform_rounds_are_those_of_before() -> None:
    """A data set's cohorts do not change with the option: recordings of an earlier version can be repeated."""
    source = data(clients_per_round=5)
    for number in range(4):
        order = torch.randperm(source.num_clients, generator=source.secret_draws("cohort", number))
        assert torch.equal(source.participants(number), order[:5].sort().values)


def test_fixed_groups_take_turns() -> None:
    found = drawn(Schedule(kind="fixed-groups"), 9)
    assert found[:3].flatten().bincount(minlength=CLIENTS).tolist() == [1] * CLIENTS
    assert torch.equal(found, found[:3].repeat(3, 1))
    assert found.flatten().bincount().tolist() == [3] * CLIENTS


def test_clients_of_a_batch_always_take_part_together() -> None:
    found = drawn(Schedule(kind="batched", batch=2), 60)
    taking = torch.zeros(60, CLIENTS).scatter_(1, found, 1)
    alike = (taking.T[:, None] == taking.T).all(2)
    assert alike.sum(1).tolist() == [2] * CLIENTS
    assert len(torch.unique(found, dim=0)) > 3  # batches are drawn anew, in contrast to fixed groups


@pytest.mark.parametrize(
    ("schedule", "size"),
    [
        (Schedule(kind="fixed-groups"), 5),
        (Schedule(kind="batched", batch=5), 5),
        (Schedule(kind="batched", batch=3), 4),
    ],
)
def test_groups_that_do_not_divide_the_clients_are_refused(schedule: Schedule, size: int) -> None:
    with pytest.raises(InputError, match="whole groups"):
        drawn(schedule, 1, size=size)


@pytest.mark.parametrize("value", [{"kind": "sorted"}, {"batch": 0}])
def test_impossible_schedules_are_refused(value: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(value))):
        Schedule(**value)  # type: ignore[arg-type]
