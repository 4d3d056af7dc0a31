"""Tests of declared noise: valid for every update, and missing noise is found."""

import numpy as np
import pytest

from fedleak_guard.noise_tests import least_noise

SIZE = 5000


@pytest.mark.parametrize("kind", ["zero", "constant", "half", "one"])
def test_no_false_finding_whatever_the_update(kind: str) -> None:
    draws = np.random.default_rng(0)
    fixed = {"zero": np.zeros(SIZE), "constant": np.full(SIZE, 0.02), "half": np.zeros(SIZE), "one": np.zeros(SIZE)}[
        kind
    ]
    fixed[: SIZE // 2] += 3.0 * (kind == "half")
    fixed[0] += 100.0 * (kind == "one")
    for _ in range(200):
        assert least_noise(fixed + draws.normal(size=SIZE), 1.0, 0.0).reason == ""


@pytest.mark.parametrize("scale", [0.0, 0.5, 0.9])
def test_less_noise_is_found_by_the_norm(scale: float) -> None:
    numbers = scale * np.random.default_rng(0).normal(size=SIZE)
    found = least_noise(numbers, 1.0, 0.0)
    assert "root mean square" in found.reason
    assert found.ratio == pytest.approx(scale, abs=0.02)


def test_missing_noise_under_a_large_sparse_update_is_found_by_small_numbers() -> None:
    numbers = np.zeros(SIZE)
    numbers[:100] = 50.0
    found = least_noise(numbers, 1.0, 0.0)
    assert found.ratio > 1
    assert "of the numbers are below" in found.reason


def test_numbers_that_are_rounded_are_no_finding() -> None:
    draws = np.random.default_rng(0).normal(size=SIZE)
    grid = 0.1
    rounded = np.round(draws / grid) * grid
    assert least_noise(rounded, 1.0, 0.0).reason
    assert least_noise(rounded, 1.0, grid).reason == ""
