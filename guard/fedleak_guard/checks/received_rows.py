"""Rows of the received model that are multiples of each other."""

from typing import ClassVar

import numpy as np

from fedleak_guard.check import Check, Measurement, NotMadeError, measured
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

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measurement | None:
        if message.sent is None:
            return None
        if message.received is None:
            raise NotMadeError("the received model is unknown")
        shares = {}
        for name, weight in message.model.items():
            if weight.ndim > 1:
                shares[name] = share(weight, zeros=not first)
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
    first, second, is_zero = _projections(rows)
    # Multiples have one angle; half a turn apart are those by a negative factor.
    nonzero = np.flatnonzero(~is_zero)
    angles = np.arctan2(first[~is_zero], second[~is_zero]) % np.pi
    order = np.argsort(angles)
    nonzero = nonzero[order]
    angles = angles[order]
    # The last angle is next to the first one, since angles are on a circle of pi.
    following = np.roll(nonzero, -1)
    gap = np.abs(np.roll(angles, -1) - angles)
    near = np.flatnonzero(np.minimum(gap, np.pi - gap) < _NEAR)
    is_multiple = np.zeros(len(rows), bool)
    # Pairs are compared in parts, so that memory holds 512 of the rows in double precision.
    for part in np.array_split(near, max(1, len(near) // 256)):
        row = nonzero[part]
        neighbour = following[part]
        same = are_multiples(rows[row].astype(np.float64), rows[neighbour].astype(np.float64))
        same &= row != neighbour  # a single row follows itself
        is_multiple[row[same]] = True
        is_multiple[neighbour[same]] = True
    zero_rows = 0
    if zeros or len(nonzero):
        zero_rows = is_zero.sum()
    return float(is_multiple.sum() + zero_rows) / len(rows)


def _projections(rows: Array) -> tuple[Array, Array, Array]:
    """``(N,)`` two random projections of each row, and whether the row is 0 altogether."""
    # The seeds are fixed, so that one model has one value; a server gains nothing by knowing them, as multiples have
    # one ratio in every projection.
    columns = np.random.default_rng(0).permutation(rows.shape[1])[:_COLUMNS]
    directions = np.random.default_rng(1).normal(size=(2, len(columns)))
    first, second = directions @ rows[:, columns].T.astype(np.float64)
    is_zero = (first == 0) & (second == 0)
    if is_zero.any():
        zero_in_columns = is_zero & rows.any(axis=1)
        if zero_in_columns.any():  # rows that are 0 in the chosen columns only, projected from all
            directions = np.random.default_rng(2).normal(size=(2, rows.shape[1]))
            first[zero_in_columns], second[zero_in_columns] = directions @ rows[zero_in_columns].T.astype(np.float64)
            is_zero &= ~zero_in_columns
    return first, second, is_zero


def are_multiples(rows: Array, candidates: Array) -> Array:
    """``(N,)`` whether each row of ``(N, D)`` numbers is a multiple of the same row of others, to rounding."""
    # The factor by which a candidate is nearest to the row: that of least squares, <row, candidate> / |candidate|^2.
    factor = (rows * candidates).sum(axis=1, keepdims=True) / np.square(candidates).sum(axis=1, keepdims=True)
    difference = np.linalg.norm(rows - factor * candidates, axis=1)
    return np.asarray(difference <= _SAME * np.linalg.norm(rows, axis=1))
