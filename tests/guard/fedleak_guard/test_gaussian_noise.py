"""Noise that the guard adds: Gaussian, from the system, and on a grid that says nothing of the update."""

import math
import os
from collections import Counter

import numpy as np
import pytest

from fedleak_guard.gaussian_noise import clipped_with_noise, standard_normal

SCALE = 0.1
STEP = 2.0 ** (math.floor(math.log2(SCALE)) - 20)


def test_numbers_are_standard_normal_and_those_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    draws, taken = np.random.default_rng(0), Counter[str]()

    def urandom(count: int) -> bytes:
        taken["bytes"] += count
        return draws.bytes(count)

    monkeypatch.setattr(os, "urandom", urandom)
    numbers = standard_normal(200_001)
    assert taken["bytes"] == 16 * 200_001
    assert abs(numbers.mean()) < 0.01
    assert numbers.std() == pytest.approx(1, abs=0.01)
    shares = [(numbers < bound).mean() for bound in (-2, -1, 0, 1, 2)]
    assert shares == pytest.approx([(1 + math.erf(bound / math.sqrt(2))) / 2 for bound in (-2, -1, 0, 1, 2)], abs=0.01)
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.01


@pytest.mark.parametrize("byte", [0, 255])
def test_the_largest_numbers_are_finite(monkeypatch: pytest.MonkeyPatch, byte: int) -> None:
    monkeypatch.setattr(os, "urandom", lambda count: bytes([byte]) * count)
    assert np.abs(standard_normal(3)).max() < 8.58
    assert standard_normal(0).shape == (0,)


def test_what_can_leave_is_the_same_whatever_the_update_is() -> None:
    for change in (np.zeros(500), np.random.default_rng(0).normal(size=500), np.full(500, math.pi)):
        (noisy,) = clipped_with_noise({"a": change}, clip=1.0, scale=SCALE).values()
        assert np.array_equal(np.rint(noisy / STEP), noisy / STEP)


def test_the_norm_does_not_grow_by_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise, what is left is the clipped update, rounded towards 0."""
    monkeypatch.setattr(os, "urandom", lambda count: b"\xff" * count)  # a radius of 0
    change = {"a": np.random.default_rng(0).normal(size=(30, 40)).astype("f"), "b": np.ones(7, np.float16)}
    clipped = clipped_with_noise(change, clip=0.5, scale=SCALE)
    norm = math.sqrt(sum(float(np.square(value).sum()) for value in clipped.values()))
    assert 0.499 < norm <= 0.5
    assert clipped["a"].shape == (30, 40)
