"""Vectors of whole numbers that are short by a Gram matrix."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_MOST_VECTORS = 20_000
"""Largest number of partial vectors of whole numbers that are looked at; above, the rows that they concern are not
certain."""


def vectors_within(gram: Tensor, least: Sequence[int], most: Sequence[int], length: float) -> Tensor | None:
    """``(S, U)`` whole numbers d within ranges with ``d^T gram d <= length^2``; None if there are too many.

    With the Cholesky factor R of the Gram matrix, ``d^T gram d = sum_k (R d)_k^2``, so the last number of d has a
    range, and each earlier one a range that depends on the later ones (Fincke and Pohst).

    References:
        [Fincke85].
    """
    factor = torch.linalg.cholesky_ex((gram + gram.T) / 2).L.T.numpy()
    if not np.isfinite(factor).all() or (factor.diagonal() <= 0).any():
        return None
    short = list[tuple[int, ...]]()
    looked_at = 0
    # Partial vectors: numbers that are not chosen, the chosen ones after them, and what is left of the squared length.
    partial: list[tuple[int, tuple[int, ...], float]] = [(len(gram), (), length**2)]
    while partial:
        unchosen, later, room = partial.pop()
        if unchosen == 0:
            short.append(later)
            continue
        index = unchosen - 1
        # (R d)_k = R_kk (d_k - center) with what the later numbers contribute; it must stay within the room.
        scale = factor[index, index]
        center = -float(factor[index, index + 1 :] @ np.array(later, dtype=float)) / scale
        reach = room**0.5 / scale
        lowest = max(least[index], math.ceil(center - reach))
        highest = min(most[index], math.floor(center + reach))
        looked_at += max(highest - lowest + 1, 0)
        if looked_at > _MOST_VECTORS:
            return None
        for number in range(lowest, highest + 1):
            room_left = max(room - (scale * (number - center)) ** 2, 0.0)
            partial.append((index, (number, *later), room_left))
    return torch.tensor(short, dtype=torch.int64).reshape(len(short), len(gram))


def pivoted_order(gram: Tensor) -> Tensor:
    """Order in which each vector has the most left outside of the span of the ones before it."""
    # A Cholesky factorisation with pivots: what is left of the Gram matrix without the vectors chosen so far.
    remaining = gram.clone()
    order = list[int]()
    is_open = torch.ones(len(gram), dtype=torch.bool)
    for _ in range(len(gram)):
        pivot = int(remaining.diagonal().masked_fill(~is_open, -torch.inf).argmax())
        order.append(pivot)
        is_open[pivot] = False
        along = remaining[:, pivot] / remaining[pivot, pivot].clamp(min=1e-300)
        remaining = remaining - along[:, None] * remaining[pivot]
    return torch.tensor(order)
