"""Epsilon of composed Gaussian mechanisms, against dp-accounting."""

import math

import pytest

from fedleak.core import gaussian_budget
from fedleak_guard.gaussian import gaussian_epsilon


@pytest.mark.parametrize("precision", [1e-6, 0.01, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
def test_it_is_that_of_dp_accounting(precision: float, delta: float) -> None:
    known = gaussian_budget.gaussian_epsilon(precision, delta)
    assert gaussian_epsilon(precision, delta) == pytest.approx(known, rel=1e-6, abs=1e-9)


def test_without_noise_it_is_infinite_and_without_messages_0() -> None:
    assert gaussian_epsilon(math.inf, 1e-5) == math.inf
    assert gaussian_epsilon(0.0, 1e-5) == 0
