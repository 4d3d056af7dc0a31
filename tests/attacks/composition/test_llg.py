"""LLG assigns all labels at once as if one after the other."""

import torch

from attacks.composition.llg import greedy_counts
from protocol.seeding import generator_for


def test_all_labels_at_once_are_those_of_one_after_the_other() -> None:
    draw = generator_for(0, "gradient")
    gradient = torch.randn(6, 5, generator=draw, dtype=torch.float64)
    offset = torch.rand(5, generator=draw, dtype=torch.float64) / 5
    impact, sizes = torch.tensor(-4.0, dtype=torch.float64), torch.tensor([7, 31, 2, 100, 64, 5])
    found = greedy_counts(gradient, offset, impact, sizes)
    for row, size, counts in zip(gradient, sizes.tolist(), found, strict=True):
        left = row - offset
        slow = [c for c in range(5) if row[c] < 0][:size]
        for c in slow:
            left[c] -= impact / size
        while len(slow) < size:
            slow.append(int(left.argmin()))
            left[slow[-1]] -= impact / size
        assert counts.tolist() == torch.tensor(slow).bincount(minlength=5).tolist()
