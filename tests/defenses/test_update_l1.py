"""IMIA's L1 penalty against a loop over each client's own rows and the published code, and its errors."""

import math

import pytest
import torch

from fedleak.core.errors import InputError
from fedleak.defenses.update_l1 import UpdateL1
from tests.golden.recommendation import VICTIMS, golden, published_clients, published_model

ITEMS = "item_embedding.weight"


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_equals_a_loop_over_the_clients_own_rows(reduction: str) -> None:
    """Two clients of a 10-row table: one touches 3 rows, the other 2 (one padded row equals what was received)."""
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(10, 4, generator=generator)
    ids = [[1, 4, 7], [0, 9]]
    received = torch.zeros(2, 3, 4)
    for client, rows in enumerate(ids):
        received[client, : len(rows)] = table[rows]
    current = received + torch.randn(2, 3, 4, generator=generator)
    current[1, 2] = received[1, 2]

    expected = []
    for client, rows in enumerate(ids):
        change = (current[client, : len(rows)] - table[rows]).abs()
        expected.append(0.5 * (change.mean() if reduction == "mean" else change.sum()))

    defense = UpdateL1(strength=0.5, reduction=reduction)  # type: ignore[arg-type]
    penalty = defense.penalty({ITEMS: current}, {ITEMS: received}, {ITEMS: torch.tensor([12, 8])})
    torch.testing.assert_close(penalty, torch.stack(expected))


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_training_equals_the_published_code(victim: int, strength: float) -> None:
    rows, labels = (golden()[name][None] for name in (f"rows{victim}", f"labels{victim}"))
    user = golden()["users"][victim : victim + 1]
    deltas = published_clients(strength).simulate(published_model(), rows, labels, user)
    expected = -golden()[f"change{victim}_mu{strength:.0f}"][None]
    torch.testing.assert_close(deltas[ITEMS], expected, rtol=1e-3, atol=1e-6)


def test_several_parameters_add_up() -> None:
    current = {"a": torch.ones(2, 4), "b": torch.full((2, 2, 2), 3.0)}
    received = {name: torch.zeros_like(value) for name, value in current.items()}
    defense = UpdateL1(strength=2.0, parameters=["a", "b"])
    penalty = defense.penalty(current, received, dict.fromkeys("ab", torch.tensor([4, 4])))
    torch.testing.assert_close(penalty, torch.full((2,), 8.0))


def test_gradient_is_the_sign_over_the_size() -> None:
    received = torch.zeros(1, 2, 2)
    current = torch.tensor([[[1.0, -1.0], [2.0, -3.0]]], requires_grad=True)
    penalty = UpdateL1(strength=3.0).penalty({ITEMS: current}, {ITEMS: received}, {ITEMS: torch.tensor([30])})
    assert penalty is not None
    penalty.sum().backward()  # type: ignore[no-untyped-call]
    assert current.grad is not None
    torch.testing.assert_close(current.grad, torch.tensor([[[0.1, -0.1], [0.1, -0.1]]]))


@pytest.mark.parametrize("strength", [-1.0, math.nan, math.inf])
def test_impossible_strength_is_refused_and_zero_is_no_penalty(strength: float) -> None:
    one = {ITEMS: torch.ones(1, 1, 1)}
    assert UpdateL1(strength=0.0).penalty(one, one, {ITEMS: torch.ones(1)}) is None
    with pytest.raises(InputError, match="strength"):
        UpdateL1(strength=strength)
    with pytest.raises(InputError, match="encoder"):
        UpdateL1(strength=1.0, parameters=["encoder"]).penalty(one, one, {ITEMS: torch.ones(1)})
