"""Whole numbers of copies from weights that were rounded wrong."""

import torch

from fedleak.attacks.reconstruction.copy_numbers import repaired, repaired_sum
from fedleak.attacks.reconstruction.possible_changes import PossibleChanges
from fedleak.core.seeding import generator_for


def test_numbers_of_a_sum_arerepaired_though_their_sum_is_wrong() -> None:
    """Rows missing, too many and in place of others, of which exchanges alone keep the wrong number of records."""
    draws = generator_for(0, "atoms")
    points = torch.cat([torch.rand(20, 6, generator=draws), torch.ones(20, 1)], dim=1).double()
    changes = torch.randn(20, 12, generator=draws).double()
    possible = PossibleChanges(points, changes, torch.arange(20), torch.zeros(20).long())
    chosen, true, rate = torch.arange(12), torch.tensor([3, 1, 2, 5, 1, 1, 2, 4, 1, 2, 3, 1]), 0.05
    rows = -rate * (true.double() @ possible.matrices(chosen)).reshape(12, 7)
    rough = true.double()
    rough[[0, 3, 7]] -= 1
    rough[4] += 1
    found = repaired_sum(rows, possible, chosen, rate * rough, rate, 1e-9)
    assert found is not None
    assert torch.equal(found[1], true)
    assert repaired(rows, possible, chosen, rough.long(), 1e-9) is None
    assert repaired_sum(rows + 0.1, possible, chosen, rate * rough, rate, 1e-9) is None
