"""Rows of the received model that are multiples of each other."""

from typing import ClassVar

import numpy as np

from fedleak_guard.check import Check, Measured, NotMadeError, measured
from fedleak_guard.message import Message
from fedleak_guard.policy import Action, Policy
from fedleak_recorder.arrays import Array

_FEWEST_ROWS, _FEWEST_NUMBERS = 16, 8
"""Rows of a tensor, and numbers in a row, below which rows may be multiples by chance or by design."""
_SAME = 1e-5
"""Relative difference of two rows that are multiples of each other, by the rounding of float32."""
_NEAR = 1e-4
"""Difference of the angles of their projections, in radians."""
_COLUMNS = 64
"""Columns that are projected."""


class ReceivedRows(Check):
    """Largest share, over the weights, of rows that are a multiple of another row of the same weight.

    An imprint module has one statistic of the record in all of its rows, and a sparse one in all that are not 0. Rows
    that are drawn or trained are multiples of each other with a probability of about 0. Rows of zeros count too: units
    that are switched off, as in gradient suppression; a weight that is 0 altogether counts from a job's second message
    on, because some are 0 at first. It needs no threshold of a network, and numpy alone.
    """

    name = "received-rows"
    text = "largest share of the rows of a received weight that are multiples of each other or 0"
    actions: ClassVar[tuple[Action, ...]] = ("refuse", "log")
    may_lack = True
    limited = True
    most: ClassVar[float] = 0.1

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measured | None:
        if message.sent is None:
            return None
        if message.received is None:
            raise NotMadeError("the received model is unknown")
        shares = {name: share(value, zeros=not first) for name, value in message.model.items() if value.ndim > 1}
        name = max(shares, key=lambda name: shares[name], default="")
        value = shares.get(name, 0.0)
        sentence = f"a share of {value:.4g} of the rows of the received {name[:80]!r} are multiples of each other or 0"
        return measured(value, policy.limits.get(self.name, self.most), sentence)


def share(weight: Array, *, zeros: bool) -> float:
    """Share of the rows of a weight that are multiples of another row.

    Two random projections of some columns have the same ratio for multiples; rows that are neighbours in that order are
    then compared in all numbers, so that an honest weight costs little.

    Args:
        weight: ``(rows, ...)``.
        zeros: whether a weight of zeros alone counts.
    """
    if not weight.size:
        return 0.0
    rows = weight.reshape(len(weight), -1)
    if len(rows) < _FEWEST_ROWS or rows.shape[1] < _FEWEST_NUMBERS or rows.dtype.kind != "f":
        return 0.0
    some = np.random.default_rng(0).permutation(rows.shape[1])[:_COLUMNS]
    first, second = np.random.default_rng(1).normal(size=(2, len(some))) @ rows[:, some].T.astype(np.float64)
    empty = (first == 0) & (second == 0)
    left = empty & rows.any(axis=1) if empty.any() else np.zeros(len(rows), bool)
    if left.any():  # rows that are 0 in the chosen columns only
        whole = np.random.default_rng(2).normal(size=(2, rows.shape[1]))
        first[left], second[left] = whole @ rows[left].T.astype(np.float64)
        empty &= ~left
    kept, angles = np.flatnonzero(~empty), np.arctan2(first[~empty], second[~empty]) % np.pi
    order = np.argsort(angles)
    kept, angles = kept[order], angles[order]
    following, gap = np.roll(kept, -1), np.abs(np.roll(angles, -1) - angles)
    near = np.minimum(gap, np.pi - gap) < _NEAR
    same = np.zeros(len(rows), bool)
    for places in np.array_split(np.flatnonzero(near), max(1, int(near.sum()) // 256)):
        pair = kept[places], following[places]
        multiple = are_multiples(rows[pair[0]].astype(np.float64), rows[pair[1]].astype(np.float64))
        multiple &= pair[0] != pair[1]
        same[pair[0][multiple]] = same[pair[1][multiple]] = True
    counts = empty.sum() if zeros or len(kept) else 0
    return float(same.sum() + counts) / len(rows)


def are_multiples(one: Array, other: Array) -> Array:
    """``(N,)`` whether each row of ``(N, D)`` numbers is a multiple of the same row of others, to rounding."""
    factor = (one * other).sum(axis=1, keepdims=True) / np.square(other).sum(axis=1, keepdims=True)
    return np.asarray(np.linalg.norm(one - factor * other, axis=1) <= _SAME * np.linalg.norm(one, axis=1))
