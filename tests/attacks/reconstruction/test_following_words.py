"""Counts of next words are exact, also with more prefixes than dimensions."""

import pytest
import torch

from fedleak.attacks.reconstruction.following_words import next_words
from fedleak.core.seeding import generator_for


@pytest.mark.parametrize(("prefixes", "dimensions"), [(1, 5), (12, 20), (30, 24)])
@pytest.mark.parametrize("sharpness", [0.01, 2.0])
def test_counts_come_back(prefixes: int, dimensions: int, sharpness: float) -> None:
    """A sharp model predicts some words with a large probability."""
    generator = generator_for(0, "next words", prefixes)
    states = torch.randn(prefixes, dimensions, generator=generator, dtype=torch.float64)
    states[:, -1] = 1
    logits = sharpness * torch.randn(prefixes, 200, generator=generator, dtype=torch.float64)
    counts = torch.zeros(prefixes, 200, dtype=torch.int64)
    counts[torch.arange(prefixes), torch.randint(200, (prefixes,), generator=generator)] += 1
    counts[: prefixes // 3, 7] += 2
    change = 0.05 * (counts - counts.sum(1, keepdim=True) * logits.softmax(1)).T @ states
    noise = 1e-9
    change = change + noise * torch.randn(change.shape, generator=generator, dtype=torch.float64)
    found = next_words(change, states, logits, torch.ones(prefixes, dtype=torch.int64), noise)
    assert torch.equal(found.counts, counts)
    assert found.excess == pytest.approx(1, rel=0.1)


def test_a_missing_prefix_leaves_something_unexplained() -> None:
    generator = generator_for(1, "next words")
    states = torch.randn(6, 20, generator=generator, dtype=torch.float64)
    states[:, -1] = 1
    logits = torch.zeros(6, 50, dtype=torch.float64)
    counts = torch.eye(6, 50).long()
    change = (counts - logits.softmax(1)).T @ states
    found = next_words(change, states[:5], logits[:5], torch.ones(5, dtype=torch.int64), 1e-9)
    assert found.excess > 1000
