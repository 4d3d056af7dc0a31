"""Whether other numbers of copies make the same update."""

import pytest
import torch

from fedleak.attacks.reconstruction.copy_certificate import are_only_copies
from fedleak.attacks.reconstruction.possible_changes import PossibleChanges


@pytest.mark.parametrize(("shares", "certain"), [((1.0, 1.0), False), ((0.5, 0.5), False), ((0.5, 0.7), True)])
def test_certificate_of_a_sum_excludes_other_numbers_of_records(shares: tuple[float, float], certain: bool) -> None:
    """A third row that changes as much as whole numbers of copies of two others together may be in their place."""
    changes = torch.tensor([[1.0, 0.0], [0.0, 1.0], shares], dtype=torch.float64)
    possible = PossibleChanges(torch.ones(1, 1).double(), changes, torch.zeros(3).long(), torch.arange(3))
    copies = torch.tensor([3, 3])
    rows = -3 * (changes[0] + changes[1])[:, None]
    assert are_only_copies(rows, possible, torch.arange(2), copies, 1e-6, is_sum=True) == certain
