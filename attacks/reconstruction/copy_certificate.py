"""Whether no other numbers of copies of possible rows make the same update."""

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.possible_changes import PossibleChanges

_APART = 4.0
"""Times the rounding of the update by which another set of rows must miss it."""
_CHANGED = 1e-3
"""Change of the number of records by an exchange from which on the exchange is none."""
_MOST_COPIES = 256
"""Largest number of copies of a further row that the certificate of a sum excludes one by one."""


def are_only_copies(
    rows: Tensor, possible: PossibleChanges, chosen: Tensor, copies: Tensor, floor: float, *, is_sum: bool
) -> bool:
    """Whether no other numbers of the rows found, and no further possible row, make the same update."""
    misfit, rate = possible.misfit(rows, chosen, copies)
    if not len(chosen):
        return False
    products = possible.products(chosen)
    gram = products[chosen]
    # Other numbers of the rows found miss the update by the smallest singular value of their changes at least.
    smallest = float(torch.linalg.eigvalsh(gram)[0].clamp(min=0).sqrt())
    if misfit > floor or rate * smallest < _APART * floor:
        return False
    # A further row misses it by its distance from their span: |a|^2 less the part along them.
    shares = torch.linalg.solve(gram, products.T).T  # (P, m) of the rows found in each other one
    distances = (possible.squares - (products * shares).sum(1)).clamp(min=0).sqrt()
    is_apart = rate * distances >= _APART * floor
    is_apart[chosen] = True
    fewer = shares.sum(1) - 1  # by how many records an exchange for one copy changes their number
    if is_sum:
        hidden = (~is_apart).nonzero().flatten()
        heights = torch.linalg.inv(gram).diagonal().rsqrt()  # distance of each row's change from the span of the others
        return not bool(_may_replace(shares[hidden], fewer[hidden], copies, heights, rate=rate, floor=floor).any())
    is_apart |= fewer.abs() > _CHANGED
    return bool(is_apart.all())


def _may_replace(
    shares: Tensor, fewer: Tensor, copies: Tensor, heights: Tensor, *, rate: float, floor: float
) -> Tensor:
    """``(H,)`` whether copies of further rows may replace whole numbers of the rows found, in a sum of any size.

    Args:
        shares: ``(H, m)`` of the rows found in each further row, whose change is in their span.
        fewer: ``(H,)`` by how many records an exchange for one copy changes their number.
        copies: ``(m,)`` copies of the rows found.
        heights: ``(m,)`` distance of each one's change from the span of the others'.
        rate: rate of the step.
        floor: length of the rounding of the update.
    """
    # As many copies as change the number of records by the number that there is, to 0 or twice as many.
    most = (int(copies.sum()) / fewer.abs().clamp(min=_CHANGED)).long()
    may_replace = most > _MOST_COPIES
    checked = min(int(most.max()), _MOST_COPIES) if len(most) else 0
    for number in range(1, 1 + checked):
        copies_left = copies - number * shares
        # What is left of whole numbers that are not negative, as a length in the update.
        rests = (copies_left.round().clamp(min=0) - copies_left).abs() * heights
        may_replace |= (number <= most) & (rate * rests.amax(1) < _APART * floor)
    return may_replace
