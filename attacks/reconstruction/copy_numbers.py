"""Whole numbers of copies of possible rows, from the weights of least squares."""

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.possible_changes import PossibleChanges
from fedleak.core.largest_remainders import largest_remainders

_EXCHANGES = 24
"""Largest number of records that are exchanged one by one, to repair what was rounded wrong."""
_MOST_EXCHANGES = 64
"""Largest number of records that are exchanged, added or removed one by one at a known rate."""
_LEAST_PROGRESS = 0.02
"""Share of the squared misfit by which each of these must lower it."""
_NEAR = 2.0
"""Misfit, in changes by the row of the largest, up to which they are repaired otherwise."""


def total_rows(weights: Tensor, count: int, rate: float | None) -> int:
    """Number of all rows, of a sum of clients too, as the weights give it: not exact in single precision."""
    if rate is None:
        return count
    return max(count, round(float(weights.sum()) / rate))


def with_copies(chosen: Tensor, copies: Tensor) -> tuple[Tensor, Tensor]:
    """Those of the chosen with copies, and their copies."""
    return chosen[copies > 0], copies[copies > 0]


def proportional_copies(weights: Tensor, total: int) -> Tensor:
    """``(m,)`` int64 numbers of copies proportional to weights ``(m,)``, of the sum `total`."""
    shares = weights.double() / weights.sum().clamp(min=1e-300)
    return largest_remainders(shares, torch.tensor(total))


def are_near(rows: Tensor, possible: PossibleChanges, chosen: Tensor, weights: Tensor, *totals: int) -> bool:
    """Whether the numbers of copies of one of the totals may be repaired, by the length that they leave."""
    longest = float(possible.squares.max().sqrt())
    for total in totals:
        copied, copies = with_copies(chosen, proportional_copies(weights, total))
        misfit, rate = possible.misfit(rows, copied, copies)
        if misfit <= _NEAR * rate * longest:
            return True
    return False


def copy_numbers(
    rows: Tensor,
    possible: PossibleChanges,
    chosen: Tensor,
    weights: Tensor,
    *,
    count: int,
    rate: float | None,
    floor: float,
    at_rate: bool,
) -> tuple[Tensor, Tensor] | None:
    """Numbers of rows of which the step is the update: in all the client's or the inferred, or `at_rate` any; or None.

    The client's number comes first, as one may be given for a whole sum.
    """
    for total in dict.fromkeys([count, total_rows(weights, count, rate)]):
        copied, copies = with_copies(chosen, proportional_copies(weights, total))
        numbers = repaired(rows, possible, copied, copies, floor)
        if numbers is not None:
            return numbers
    if at_rate and rate is not None:
        return repaired_sum(rows, possible, chosen, weights, rate, floor)
    return None


def repaired(
    rows: Tensor, possible: PossibleChanges, chosen: Tensor, copies: Tensor, floor: float
) -> tuple[Tensor, Tensor] | None:
    """Numbers of rows of which the step is the update, from nearly right ones by exchanges of single rows; or None."""
    misfit, rate = possible.misfit(rows, chosen, copies)
    longest = float(possible.squares.max().sqrt())
    products: Tensor | None = None  # with the chosen
    for _ in range(_EXCHANGES):
        if misfit <= floor:
            return chosen, copies
        # An exchange repairs about one change: a larger misfit is no matter of numbers that were rounded wrong.
        if misfit > _EXCHANGES * rate * longest:
            return None
        if products is None:
            products = possible.products(chosen)
        remaining = rows + rate * (copies.double() @ possible.matrices(chosen)).reshape(rows.shape)
        along = possible.along(remaining) * rate
        # Adding row l and removing row k changes the squared misfit by 2 <left, a_l - a_k> + |a_l - a_k|^2.
        change = (2 * along + rate**2 * possible.squares)[:, None] - 2 * rate**2 * products
        change += (rate**2 * possible.squares - 2 * along)[chosen]
        entering, leaving = divmod(int(change.argmin()), len(chosen))
        copies = copies.clone()
        copies[leaving] -= 1
        is_entering = chosen == entering
        if bool(is_entering.any()):
            copies[is_entering.nonzero()[0]] += 1
        else:
            chosen = torch.cat([chosen, torch.tensor([entering])])
            copies = torch.cat([copies, copies.new_ones(1)])
            products = None
        if not bool((copies > 0).all()):
            chosen, copies = with_copies(chosen, copies)
            products = None
        misfit_before = misfit
        misfit, rate = possible.misfit(rows, chosen, copies)
        if misfit >= misfit_before:
            return None
    return (chosen, copies) if misfit <= floor else None


def repaired_sum(
    rows: Tensor, possible: PossibleChanges, chosen: Tensor, weights: Tensor, rate: float, floor: float
) -> tuple[Tensor, Tensor] | None:
    """Numbers of rows, of any sum, of which the step is the update, at the known rate of one row; or None.

    From the rounded weights, the change of the least misfit is made until none lowers it enough: one row is exchanged
    for another, added, or removed.
    """
    chosen, copies = with_copies(chosen, (weights / rate).round().long())
    if not len(chosen):
        return None
    squares = rate**2 * possible.squares
    products = rate**2 * possible.products(chosen)
    misfit_before = float("inf")
    for _ in range(_MOST_EXCHANGES):
        remaining = rows + rate * (copies.double() @ possible.matrices(chosen)).reshape(rows.shape)
        misfit = float(remaining.norm())
        if misfit <= floor:
            return with_copies(chosen, copies)
        if misfit**2 > (1 - _LEAST_PROGRESS) * misfit_before**2:
            return None
        misfit_before = misfit
        # Changes of the squared misfit: 2 <left, a_l> + |a_l|^2 by adding row l, |a_k|^2 - 2 <left, a_k> by removing
        # row k, and both less 2 <a_l, a_k> by an exchange.
        along = 2 * rate * possible.along(remaining)
        adding = along + squares
        removing = (squares - along)[chosen].masked_fill(copies == 0, torch.inf)
        exchanging = torch.add(removing, products, alpha=-2).add_(adding[:, None])
        least_changes = torch.stack([exchanging.min(), adding.min(), removing.min()])
        best = ("exchange", "add", "remove")[int(least_changes.argmin())]
        entering, leaving = -1, -1
        if best == "exchange":
            entering, leaving = divmod(int(exchanging.argmin()), len(chosen))
        elif best == "add":
            entering = int(adding.argmin())
        else:
            leaving = int(removing.argmin())
        copies = copies.clone()
        if leaving >= 0:
            copies[leaving] -= 1
        if entering >= 0 and not bool((chosen == entering).any()):
            chosen = torch.cat([chosen, torch.tensor([entering])])
            copies = torch.cat([copies, copies.new_zeros(1)])
            products = torch.cat([products, rate**2 * possible.products(chosen[-1:])], dim=1)
        if entering >= 0:
            copies[(chosen == entering).nonzero()[0]] += 1
    return None
