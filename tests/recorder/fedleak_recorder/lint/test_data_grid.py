"""The grid of values, and by how many bits they are on it."""

from typing import Any

import numpy as np
import pytest

from fedleak_recorder.lint.data_grid import FEWEST_BITS, grid_of, is_around_zero_point, is_two_valued

DRAWS = np.random.default_rng(0)


@pytest.mark.parametrize(("decimals", "words"), [(0, "whole numbers"), (1, "1 decimals"), (3, "3 decimals")])
def test_values_of_few_decimals_are_on_a_grid(decimals: int, words: str) -> None:
    grid = grid_of(np.round(DRAWS.normal(30, 9, 40), decimals).astype("f"))
    assert grid is not None
    assert words in grid.words
    assert grid.bits > FEWEST_BITS


def test_pixels_are_on_a_grid() -> None:
    grid = grid_of(DRAWS.integers(0, 256, 40).astype("f") / 255)
    assert grid is not None
    assert grid.words == "pixels of 8 bits"


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_trained_numbers_are_on_none(kind: str) -> None:
    for scale in (1e-4, 1.0, 300.0, 1e6):
        grid = grid_of((scale * DRAWS.normal(size=40)).clip(-6e4, 6e4).astype(kind))
        # Large numbers of short types are whole, which is nothing of the data.
        assert grid is None or grid.bits < FEWEST_BITS


def test_large_numbers_of_bfloat16_count_nothing() -> None:
    short = (500 * DRAWS.normal(size=200)).astype("f")
    short = (short.view(np.uint32) & 0xFFFF0000).view("f")
    grid = grid_of(short[np.abs(short) >= 256])
    assert grid is not None
    assert grid.bits == 0


def test_zeros_count_nothing() -> None:
    assert grid_of(np.zeros(1000, "f")) is None
    whole: Any = np.zeros(1000, int)
    grid = grid_of(whole)
    assert grid is not None
    assert grid.bits == 0


def test_signs_and_quantised_updates_are_recognised() -> None:
    assert is_two_valued(np.array([0.5, 0, -0.5, 0.5]))
    assert not is_two_valued(np.array([1, 2, 0]))
    assert is_around_zero_point((128 + 20 * DRAWS.normal(size=500)).astype(np.uint8))
    assert not is_around_zero_point(DRAWS.poisson(0.7, 500))
