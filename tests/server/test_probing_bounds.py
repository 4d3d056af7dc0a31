"""The bounds of PAC identifiability against its text, by hand."""

import math

import pytest
import torch

from fedleak.server.probing_bounds import Noisy, theorem_1, theorem_2, theorem_3, tolerance

NOISE = Noisy(scale=0.5, step=-0.1 * 0.5, items=1000, largest=2.0)


def rates(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_theorem_1_by_hand_fails_with_delta_by_hoeffding_and_is_as_easy_where_most_is_liked() -> None:
    # p = 0.4, B = 10, delta = 0.05: 2 ln 20 / (10 * 0.04) = 5.99146 / 0.4. p = 0.45: (1 - 2p)^2 is a quarter of that.
    found = theorem_1(rates(0.4, 0.45, 0.6), batch=10, delta=0.05)
    assert found.tolist() == pytest.approx([14.97866, 59.91465, 14.97866], rel=1e-6)
    interactions = theorem_1(rates(0.3), batch=7, delta=0.01).item()
    assert math.exp(-2 * interactions * 7 * (0.5 - 0.3) ** 2) == pytest.approx(0.01)


def test_theorem_2_by_hand() -> None:
    # p = 0.2, beta = 0.2, tau = 0.4, B = 10, delta = 0.1.
    # First: 2 ln 20 / (10 * 0.4^2) = 3.74467. Second: 2 * 0.25 * 4 * ln 40000 / (10 * (0.05 * 0.2 * 0.4)^2).
    second = 2 * math.log(40000) / (10 * 0.004**2)
    found = theorem_2(rates(0.2), rates(0.4), NOISE, batch=10, delta=0.1, beta=rates(0.2))
    assert found.item() == pytest.approx(second)
    generous = theorem_2(rates(0.2), rates(1e9), NOISE, batch=10, delta=0.1, beta=rates(0.2))
    assert generous.item() == pytest.approx(3.74466, rel=1e-5)


def test_theorem_2_takes_the_beta_with_the_smallest_bound() -> None:
    chosen = theorem_2(rates(0.3), rates(1.0), NOISE, batch=4, delta=0.05).item()
    betas = torch.linspace(0.001, 0.399, 4000, dtype=torch.float64)
    grid = theorem_2(rates(0.3).expand(4000), rates(1.0).expand(4000), NOISE, batch=4, delta=0.05, beta=betas)
    assert chosen == pytest.approx(float(grid.min()), rel=1e-3)
    assert chosen <= float(grid.min()) * (1 + 1e-12)


def test_theorem_3_by_hand() -> None:
    # p = 0.4, tau = 0.3, N = 50, delta = 0.05: 2 * 0.25 * 4 * ln 40000 / (50 * (0.05 * 0.2 * 0.3)^2).
    expected = 2 * math.log(40000) / (50 * 0.003**2)
    found = theorem_3(rates(0.4), rates(0.3), torch.tensor([50]), NOISE, delta=0.05)
    assert found.item() == pytest.approx(expected)


def test_tolerance_is_the_supremum_of_its_definition() -> None:
    scores = torch.tensor([[-3.0, 0.5, 1.0, -2.0, 4.0]], dtype=torch.float64)
    for epsilon in (0.0, 0.1, 0.2, 0.4, 0.59, 0.6, 0.99):
        tau = tolerance(scores, epsilon).item()
        assert (scores.abs() <= tau - 1e-9).double().mean() <= epsilon
        assert (scores.abs() <= tau + 1e-9).double().mean() > epsilon
    assert tolerance(scores, 0.4).item() == 2.0
    assert tolerance(scores, 1.0).item() == math.inf


def test_assumptions_are_checked() -> None:
    with pytest.raises(ValueError, match="Assumption 1"):
        theorem_1(rates(0.3, 0.5), batch=10, delta=0.05)
    with pytest.raises(ValueError, match="Assumption 2"):
        Noisy(scale=1.0, step=0.0, items=10, largest=1.0)
    with pytest.raises(ValueError, match="delta"):
        theorem_1(rates(0.3), batch=10, delta=0.0)
    with pytest.raises(ValueError, match="beta"):
        theorem_2(rates(0.3), rates(1.0), NOISE, batch=4, delta=0.05, beta=rates(0.4))
    with pytest.raises(ValueError, match="rates"):
        theorem_1(rates(1.2), batch=10, delta=0.05)
    with pytest.raises(ValueError, match="epsilon"):
        tolerance(torch.ones(1, 3), 1.5)
