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
