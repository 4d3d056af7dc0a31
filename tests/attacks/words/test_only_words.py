"""Words are certain only if no others explain the sums: not with vectors in common, near ones, or too few rows."""

import math

import pytest
import torch
from torch import Tensor

from fedleak.attacks.words.joint_pursuit import Pursuit, VectorSums, pursue
from fedleak.attacks.words.only_words import are_only_words, log_accidents, no_word_can_be_another, norm_after_swap

VECTORS, NUMBERS, ROWS = 300, 48, 6
ERROR = 1e-6
"""Relative error of the sums."""


def table_of(seed: int = 0) -> Tensor:
    return torch.randn(VECTORS, NUMBERS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sums_of(table: Tensor, words: Tensor, *, rows: int = ROWS, error: float = ERROR, seed: int = 0) -> VectorSums:
    """Sums of the vectors of some words, with an error of the given relative norm."""
    generator = torch.Generator().manual_seed(seed + 1)
    exact = torch.randn(rows, len(words), generator=generator, dtype=torch.float64) @ table[words]
    noise = torch.randn(exact.shape, generator=generator, dtype=torch.float64)
    size = error * float(exact.norm())
    return VectorSums(exact + size / 2 * noise / noise.norm(), table, size)


def certain(sums: VectorSums, tokens: Tensor | None = None) -> tuple[bool, set[int]]:
    """Whether the words that the pursuit finds are certain, and which they are."""
    pursuit = pursue([sums], 100)
    names = torch.arange(VECTORS) if tokens is None else tokens
    return are_only_words([sums], pursuit, names), set(pursuit.chosen.tolist())


@pytest.mark.parametrize("count", [1, 5, 20, 30])
def test_words_in_general_position_are_certain_and_right(count: int) -> None:
    words = torch.randperm(VECTORS, generator=torch.Generator().manual_seed(count))[:count]
    assert certain(sums_of(table_of(), words)) == (True, set(words.tolist()))


@pytest.mark.parametrize("distance", [0.0, 1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("first", [True, False])
def test_certain_words_are_right_however_near_the_vector_of_another_word_is(distance: float, first: bool) -> None:
    """Word 200 + i has nearly the vector of word i; the texts have one of the two."""
    decisions = []
    for seed in range(5):
        table = table_of(seed)
        apart = torch.randn(100, NUMBERS, generator=torch.Generator().manual_seed(seed + 2), dtype=torch.float64)
        table[200:] = table[:100] + distance * apart
        words = torch.arange(8) + (0 if first else 200)
        is_certain, found = certain(sums_of(table, words, seed=seed))
        assert not is_certain or found == set(words.tolist())
        decisions.append(is_certain)
    if distance >= 1e-2:
        assert any(decisions)
    # In between the pursuit may take the wrong one first, and explain what is left by both: it is not certain then.
    if distance <= 1e-6:
        assert not any(decisions)


def test_another_vector_of_the_same_word_is_no_other_word() -> None:
    """A word has a vector for each place of a network that distinguishes places."""
    table = table_of()
    table[150:] = table[:150]
    same, other = torch.arange(VECTORS) % 150, torch.arange(VECTORS)
    sums = sums_of(table, torch.arange(5))
    chosen = torch.arange(5)
    assert no_word_can_be_another([sums], chosen, same)
    assert not no_word_can_be_another([sums], chosen, other)


def test_the_norm_after_a_swap_is_that_of_the_least_squares_of_every_other_word() -> None:
    table = table_of()[:20]
    table[7] = table[2] + 0.01 * table[9]
    sums = sums_of(table, torch.arange(4), error=1e-3)
    chosen, tokens = torch.arange(4), torch.arange(20)
    found = norm_after_swap([sums], chosen, tokens)
    # Without the error, so that the two agree: the derivation counts it as one error more.
    exact = sums.without([0, 1, 2, 3])
    for place in range(4):
        others = [word for word in range(4) if word != place]
        left = [(sums.rows - exact, [*others, word]) for word in range(4, 20)]
        slow = min(float(VectorSums(rows, table, 1.0).without(words).norm()) for rows, words in left) / sums.error
        assert float(found[place]) == pytest.approx(slow, rel=1e-6)


def test_nearly_as_many_words_as_numbers_in_a_single_row_are_no_certain_words() -> None:
    sums = sums_of(table_of(), torch.arange(40), rows=1)
    assert log_accidents([sums], 40) > math.log(1e-9) > log_accidents([sums], 3)
    pursuit = Pursuit(torch.arange(40), left=0.5, strength=torch.full((40,), 100.0), numbers=NUMBERS)
    assert pursuit.explained
    assert not are_only_words([sums], pursuit, torch.arange(VECTORS))


def test_the_probability_of_an_accident_is_the_measured_one() -> None:
    """One row of 6 numbers and a set of two vectors, which leave less than a share of 0.3."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(4000, 6, 1, generator=generator, dtype=torch.float64)
    basis, _ = torch.linalg.qr(torch.randn(4000, 6, 2, generator=generator, dtype=torch.float64))
    shares = ((rows - basis @ (basis.mT @ rows)).norm(dim=1) / rows.norm(dim=1)).flatten()
    measured = float((shares < 0.3).double().mean())
    row = torch.ones(1, 6, dtype=torch.float64)
    sums = VectorSums(row, torch.zeros(2, 6, dtype=torch.float64), 0.3 * float(row.norm()))
    # Of 4,000 draws 32 are expected, with a standard error of 6.
    assert math.exp(log_accidents([sums], 2)) == pytest.approx(measured, abs=4 * 6 / 4000)


def test_what_explains_nothing_is_certain_of_nothing() -> None:
    sums = sums_of(table_of(), torch.arange(5))
    empty = Pursuit(torch.zeros(0, dtype=torch.int64), left=0.5, strength=torch.zeros(0), numbers=NUMBERS)
    assert not are_only_words([sums], empty, torch.arange(VECTORS))
    noise = torch.randn(ROWS, NUMBERS, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    assert not certain(VectorSums(noise, table_of(), ERROR))[0]
