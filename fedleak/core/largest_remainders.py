"""Whole numbers with a given sum, nearest to shares of it."""

from torch import Tensor


def largest_remainders(shares: Tensor, totals: Tensor) -> Tensor:
    """``(..., K)`` int64 numbers with the sums ``totals (...)``, nearest to shares ``(..., K)`` that sum to 1.

    Every share of the total is rounded down, and what is missing is given, one each, to those with the largest rests;
    of equal rests the first go up. A share of zero stays zero.

    Example:
        >>> import torch
        >>> largest_remainders(torch.tensor([[0.5, 0.3, 0.2], [0.0, 0.9, 0.1]]), torch.tensor([7, 3]))
        tensor([[4, 2, 1],
                [0, 3, 0]])
    """
    exact = shares.double() * totals[..., None]
    numbers = exact.floor()
    # What rounding down has left over goes to the largest remainders, one each; among equal ones the first is first.
    missing = totals - numbers.sum(-1)
    order = (exact - numbers).argsort(dim=-1, descending=True, stable=True)
    rank = order.argsort(dim=-1)
    return (numbers + (rank < missing[..., None])).long()
