"""Vectors of a random table are recovered from fewer sums than vectors, in few directions or in all."""

import pytest
import torch

from fedleak.attacks.words import joint_pursuit
from fedleak.attacks.words.joint_pursuit import VectorSums, pursue

NUMBERS, ROWS, VECTORS = 96, 8, 2000


def sums(words: int, error: float = 1e-6) -> tuple[VectorSums, set[int]]:
    generator = torch.Generator().manual_seed(words)
    table = torch.randn(VECTORS, NUMBERS, generator=generator)
    chosen = torch.randperm(VECTORS, generator=generator)[:words]
    rows = torch.randn(ROWS, words, generator=generator, dtype=torch.float64) @ table[chosen].double()
    return VectorSums(rows, table, error * float(rows.norm())), set(chosen.tolist())


@pytest.mark.parametrize("few", [32, NUMBERS])
@pytest.mark.parametrize("words", [6, 20, 50])
def test_more_vectors_than_rows_are_recovered(words: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 32 directions, six words are few enough; otherwise the search starts again in all."""
    monkeypatch.setattr(joint_pursuit, "_FEW", few)
    system, chosen = sums(words)
    found = pursue([system], 200)
    assert found.explained
    assert set(found.chosen.tolist()) == chosen
    assert bool((found.strength > 1).all())


@pytest.mark.parametrize("few", [32, NUMBERS])
def test_random_sums_are_explained_by_no_choice(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint_pursuit, "_FEW", few)
    system, _ = sums(6)
    noise = torch.randn(system.rows.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert not pursue([VectorSums(noise, system.table, system.error)], 200).explained


def coherent_sums(words: int) -> tuple[VectorSums, set[int]]:
    """Sums of vectors of which three quarters of the energy is one common direction, with coefficients of many sizes.

    As with adapters of real networks, the bound of the error is twenty times the error.
    """
    generator = torch.Generator().manual_seed(words)
    common = torch.nn.functional.normalize(torch.randn(NUMBERS, generator=generator), dim=0)
    # A decaying spectrum besides: few directions hold most of what is left.
    own_part = torch.randn(VECTORS, NUMBERS, generator=generator) * torch.arange(1.0, NUMBERS + 1) ** -0.5
    table = own_part + 1.7 * own_part.norm(dim=1).mean() * common
    chosen = torch.randperm(VECTORS, generator=generator)[:words]
    sizes = 10 ** (-4 * torch.rand(words, generator=generator, dtype=torch.float64))
    coefficients = torch.randn(ROWS, words, generator=generator, dtype=torch.float64) * sizes
    noise = torch.randn(ROWS, NUMBERS, generator=generator, dtype=torch.float64)
    noise *= 3e-4 / noise.norm()
    rows = coefficients @ table[chosen].double() + noise
    return VectorSums(rows, table, 20 * float(noise.norm()), float(noise.norm())), set(chosen.tolist())


@pytest.mark.parametrize("words", [10, 20, 30])
def test_weak_vectors_of_a_coherent_table_are_found_down_to_the_error_that_is_there(words: int) -> None:
    sums, chosen = coherent_sums(words)
    found = pursue([sums], 200)
    assert found.settled
    assert set(found.present.tolist()) == chosen
    # Down to the bound alone, weak ones are lost.
    down_to_bound = pursue([VectorSums(sums.rows, sums.table, sums.error)], 200)
    assert set(down_to_bound.present.tolist()) < chosen


def test_a_least_error_far_below_the_error_adds_no_vectors() -> None:
    """As of ten steps, each of which rounds, where one is counted: noise looks like no vector of a table."""
    sums, chosen = coherent_sums(20)
    found = pursue([VectorSums(sums.rows, sums.table, sums.error, 0.1 * sums.error / 20)], 200)
    assert set(found.present.tolist()) == chosen


def test_a_wrong_vector_is_exchanged_for_the_right_one() -> None:
    sums, chosen = coherent_sums(20)
    right = sorted(chosen)
    wrong = next(vector for vector in range(VECTORS) if vector not in chosen)
    first_choice = joint_pursuit._pursuit([sums], [*right[1:], wrong])
    settled = joint_pursuit._settled([sums], first_choice, 200)
    assert set(settled.chosen.tolist()) == chosen


def test_progress_goes_from_nothing_to_all() -> None:
    sums, _ = coherent_sums(20)
    shares = list[float]()
    pursue([sums], 200, shares.append)
    assert 0 < shares[0] < 0.5
    assert shares[-1] > 0.9


def test_sums_of_which_nothing_is_above_the_bound_of_their_error_choose_nothing() -> None:
    """They may be all error, however small the error is that is there in any case."""
    system, chosen = sums(6)
    size = float(system.rows.norm())
    assert set(pursue([VectorSums(system.rows, system.table, 0.1 * size, 1e-6 * size)], 200).chosen.tolist()) == chosen
    unsure = pursue([VectorSums(system.rows, system.table, 10 * size, 1e-6 * size)], 200)
    assert len(unsure.chosen) == 0
    assert not bool(unsure.present.any())
