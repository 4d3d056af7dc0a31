"""Tests of declared noise: valid for every update, and missing noise is found."""

import numpy as np
import pytest
import torch

from fedleak_guard import Message
from fedleak_guard.noise_tests import least_noise, rounding

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


def test_numbers_that_are_too_coarse_for_the_noise_are_a_finding() -> None:
    draws = np.random.default_rng(0).normal(size=SIZE)
    assert "too coarse" in least_noise(draws, 1.0, 0.11).reason
    assert least_noise(draws, 1.0, 0.1).reason == ""


def test_the_rounding_is_that_of_each_tensor() -> None:
    before = {"a": np.zeros(3, "f"), "b": np.full(3, 3e6, "f"), "c": np.full(3, 2, np.float16)}
    after = Message(job="j", round=0, holds="models", sent=before, received=before)
    assert rounding(after) == {"a": 0.0, "b": pytest.approx(0.36, rel=0.01), "c": 2 * 2.0**-10}
    short = {"d": torch.full((3,), 2.0, dtype=torch.bfloat16)}
    assert rounding(Message(job="j", round=0, holds="models", sent=short, received=short)) == {"d": 2 * 2.0**-7}
    assert set(rounding(Message(job="j", round=0, sent=before)).values()) == {0.0}


def test_numbers_that_are_rounded_are_no_finding() -> None:
    draws = np.random.default_rng(0).normal(size=SIZE)
    grid = 0.1
    rounded = np.round(draws / grid) * grid
    assert least_noise(rounded, 1.0, 0.0).reason
    assert least_noise(rounded, 1.0, grid).reason == ""
