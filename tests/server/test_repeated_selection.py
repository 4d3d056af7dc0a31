"""Clients that a server draws to call: who they are, in which rounds, and who cannot be drawn."""

import pytest
import torch

from fedleak.core.errors import InputError
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.server.repeated_selection import RepeatedSelection
from tests.probing_toys import AFTER, clients


def test_the_same_clients_are_called_in_all_rounds_from_some_round_on() -> None:
    data, plain = clients(), clients(repeated_selection=None)
    for number in range(AFTER):
        assert torch.equal(data.participants(number), plain.participants(number))
    called = data.participants(AFTER)
    assert len(called) == 15
    assert torch.equal(called, called.sort().values)
    assert all(torch.equal(data.participants(number), called) for number in (AFTER + 1, AFTER + 100))
    before = torch.cat([data.participants(number) for number in range(AFTER)])
    assert bool(torch.isin(called, before).all())
    assert len(clients(repeated_selection=RepeatedSelection(after=1, clients=100)).participants(1)) <= 20


def test_theorems_apply_to_those_who_are_called() -> None:
    data = clients(likes=0.3, repeated_selection=RepeatedSelection(after=AFTER, clients=100))
    cohort = data.cohort(AFTER)
    rates = cohort.examples["label"].double().sum(1) / cohort.counts
    assert float(rates.min()) > 0.25
    assert float(rates.max()) <= 0.3 + 1e-9
    ten = RepeatedSelection(after=AFTER, clients=10)
    one, other = (clients(likes=0.3, seed=seed, repeated_selection=ten).participants(AFTER) for seed in (0, 1))
    assert not torch.equal(one, other)


def test_negatives_are_drawn_for_the_share_of_likes() -> None:
    cohort = clients(likes=0.2, repeated_selection=None).cohort(0)
    same = clients(negatives_per_positive=4, repeated_selection=None).cohort(0)
    assert torch.equal(cohort.rows[ITEM_EMBEDDING], same.rows[ITEM_EMBEDDING])


def test_nobody_to_draw_is_refused() -> None:
    half = clients(likes=0.5, repeated_selection=None)
    with pytest.raises(InputError, match="Assumption 1"):
        half.draw_clients(5)
    with pytest.raises(InputError, match="Assumption 1"):
        clients(repeated_selection=None).draw_clients(5, among=torch.zeros(0, dtype=torch.int64))
    with pytest.raises(ValueError, match="after"):
        RepeatedSelection(after=0)
