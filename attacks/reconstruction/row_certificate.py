"""Whether rows whose step is the update are the client's: no other rows make the same update."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from fedleak.attacks.reconstruction.peeled_rows import DistinctRows, RowChanges
from fedleak.core.table_columns import TableColumns

_APART = 4.0
"""Times the rounding of the update by which another set of rows must miss it."""
_MOST_MOVES = 2048
"""Largest number of moves of all rows together, whose Gram matrix is inverted in a second or two."""
_RESOLVED = 1e-7
"""Length, as a share of the largest row's change, that the Gram matrix in double precision resolves."""
_PRECISE = 4
"""Times the precision of the recorded numbers that the client's own computation is taken to be off at least."""
_LARGER = 1.5
"""Times the declared rate from which on an update may be that of twice as many rows."""
_MOST_VECTORS = 20_000
"""Largest number of partial vectors of whole numbers that are looked at; above, the rows that they concern are not
certain."""


@dataclass(frozen=True)
class _Moves:
    """Rows that become others, each next to the row that it was.

    Attributes:
        values: ``(L, C)`` values after the move.
        classes: ``(L,)`` class after the move.
        row: ``(L,)`` number of the row that moves.
        in_class: ``(L,)`` bool, whether only the class moves.
        least: ``(L,)`` int64 fewest times that the move can be made: less than 0 where the other way is possible.
        most: ``(L,)`` int64 most times.
    """

    values: Tensor
    classes: Tensor
    row: Tensor
    in_class: Tensor
    least: Tensor
    most: Tensor


@dataclass(frozen=True)
class _Differences:
    """Changes of an update by L moves: ``c' [x', 1]^T - c [x, 1]^T``, after and before each.

    Attributes:
        points: after and before, ``(L, E + 1)`` what the layer gets, with a 1 appended.
        biases: after and before, ``(L, N)`` changes of the biases.
    """

    points: tuple[Tensor, Tensor]
    biases: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, values: Tensor, classes: Tensor, row: Tensor, distinct: DistinctRows, changes: RowChanges) -> Self:
        """Those of rows of the given numbers that become rows of values and classes."""
        biases = changes.biases(values)[torch.arange(len(values)), classes]
        points_before, biases_before = distinct.changed_by(changes)
        return cls((changes.points(values), points_before[row]), (biases, biases_before[row]))

    def products(self, other: Self) -> Tensor:
        """``(L, M)`` scalar products with other differences, without making the matrices."""
        total = torch.zeros(len(self.points[0]), len(other.points[0]), dtype=torch.float64)
        for mine, sign in ((0, 1), (1, -1)):
            for theirs, other_sign in ((0, 1), (1, -1)):
                inner = self.points[mine] @ other.points[theirs].T
                total += sign * other_sign * inner * (self.biases[mine] @ other.biases[theirs].T)
        return total

    def along(self, matrix: Tensor) -> Tensor:
        """``(L,)`` scalar products with a matrix ``(N, E + 1)``."""
        products = [
            ((biases @ matrix) * points).sum(1) for biases, points in zip(self.biases, self.points, strict=True)
        ]
        return products[0] - products[1]


def certified_rows(
    rows: Tensor,
    distinct: DistinctRows,
    changes: RowChanges,
    *,
    floor: float,
    precision: float,
    declared_rate: float | None,
    only_numbers: bool = False,
) -> Tensor:
    """``(M,)`` bool, which of the M different rows found are certainly rows of the client.

    First, the step made again with all of them must be the update: it leaves r, at most the rounding. Second, no other
    rows may do so. A row moves if a number of it goes to the next level, if a category becomes another, or if its class
    does. To first order, other rows add ``rate * J d`` to the update, for the change J of the update by each single
    move, computed exactly, and whole numbers d of moves of all rows, any of which may move at once; the rate may change
    too. Where row i differs, its part of d has at least length 1, so that the update changes by at least

    ``rate * min |J d|  over d with |d_i| >= 1  =  rate / sqrt(largest eigenvalue of ((J^T J)^-1)_ii)``.

    This must be four times what the rows found leave: rounding that hides such a difference would have to point along
    it, though it has as many independent numbers as the update. Where it is not, whole numbers d within the columns'
    ranges are enumerated for the rows that fail, and those are certain that no d moves whose exact change is short.
    Rows of the same pattern of neurons and nearly the same errors fail, as one may take from another: two rows and
    twice their mean make nearly the same update.

    Copies of a row may move apart, to ``x + w`` and ``x - w``, which J does not see. The second difference by moves w
    of one level, of one number or of two, must be four times the rounding too. So it must for single rows if the update
    is larger than they make it at the rate of the reported number of examples: it may be a sum of several clients.

    The conditions are: the clients' algorithm is the known one; they report the number of their rows, or a multiple of
    it (see `certain_copies`), but not fewer; all rows are on the grid. Not excluded are rows at a distance, where the
    first order says nothing; they would make the update by a coincidence of all its numbers. Nor are copies that move
    apart by other numbers of levels, where the row's changes of the bias happen to stay the same.

    Args:
        rows: ``(N, D + 1)`` the update.
        distinct: rows of the client.
        changes: what each possible row changes.
        floor: length of the rounding of the rows, at most.
        precision: relative precision of the recorded numbers.
        declared_rate: the rate that follows from the reported number of examples; None if unknown.
        only_numbers: whether moves of categories and classes are excluded already, by a list of all possible rows.

    References:
        This project.
    """
    none = torch.zeros(len(distinct.values), dtype=torch.bool)
    if not len(none):
        return none
    points, biases = distinct.changed_by(changes)
    made, rate = remade_step(rows, distinct, points, biases)
    misfit = float((rows + rate * made).norm())
    moves = _moves(distinct, changes, only_numbers=only_numbers)
    if rate <= 0 or misfit > floor or len(moves.values) > _MOST_MOVES:
        return none
    rounding = min(floor, max(2 * misfit, _PRECISE * precision * float(rows.norm())))
    longest = float((biases.norm(dim=1) * points.norm(dim=1)).max())
    needed = _APART * max(rounding / rate, _RESOLVED * longest)
    single = _Differences.of(moves.values, moves.classes, moves.row, distinct, changes)
    gram = _gram(single, made)
    apart = _least_changes(gram, moves, len(points)) >= needed
    if not bool(apart.all()):
        short = _short_vectors(gram, moves, ~apart, needed)
        apart |= ~_moved_by(short, ~apart, moves, single, made, distinct, changes, needed)
    may_be_several = distinct.copies > 1
    may_be_several |= declared_rate is not None and rate > _LARGER * declared_rate
    for number in (apart & may_be_several).nonzero().flatten().tolist():
        apart[number] = copies_apart(distinct, number, changes) >= _APART * rounding / rate
    return apart


def certain_copies(copies: Tensor) -> Tensor:
    """``(sum,)`` bool, which of the copies of records are certain where the client's number of records may be wrong.

    A client's step is ``rate / N * sum_i n_i g_i`` with n_i copies of record i of gradient g_i, and ``N = sum_i n_i``.
    An update shows ``n_i / N`` only: a client that reports k times its number of examples looks as one that has k times
    as many copies of each record. With the greatest common divisor g of the numbers, ``n_i / g`` are the least whole
    numbers of these proportions, and the true ones are a whole multiple of them, whatever was reported.

    Args:
        copies: ``(M,)`` numbers of copies of each record, as they follow from the reported number of examples.

    Returns:
        For each record, ``n_i / g`` times True, then False for its other copies.

    >>> certain_copies(torch.tensor([2, 4])).tolist()
    [True, False, True, True, False, False]
    """
    common = math.gcd(*copies.tolist()) or 1
    place_among_copies = torch.cat([torch.arange(int(number)) for number in copies] or [copies])
    return place_among_copies < (copies // common).repeat_interleave(copies)


def remade_step(rows: Tensor, distinct: DistinctRows, points: Tensor, biases: Tensor) -> tuple[Tensor, float]:
    """``(N, D + 1)`` sum of the changes by all copies, and the rate at which it fits ``rows (N, D + 1)`` best."""
    made = torch.einsum("m,mn,md->nd", distinct.copies.double(), biases, points)
    return made, float(-(made * rows).sum() / made.square().sum().clamp(min=1e-300))


def is_explained(rows: Tensor, distinct: DistinctRows, changes: RowChanges, *, floor: float) -> bool:
    """Whether a step with the rows found is the update, up to a length."""
    made, rate = remade_step(rows, distinct, *distinct.changed_by(changes))
    return rate > 0 and float((rows + rate * made).norm()) <= floor


def _moves(distinct: DistinctRows, changes: RowChanges, *, only_numbers: bool) -> _Moves:
    """All single moves of all rows."""
    kinds = changes.biases(distinct.values[:1]).shape[1]
    moved, classes, row, limits = list[Tensor](), list[int](), list[int](), list[tuple[int, int]]()
    for number, (values, label) in enumerate(zip(distinct.values, distinct.classes.tolist(), strict=True)):
        of_values = _moves_of_values(values, changes.columns, only_numbers=only_numbers)
        other_classes = [] if only_numbers else [kind for kind in range(kinds) if kind != label]
        moved += [after for after, _ in of_values] + [values] * len(other_classes)
        limits += [limit for _, limit in of_values] + [(0, 1)] * len(other_classes)
        classes += [label] * len(of_values) + other_classes
        row += [number] * (len(of_values) + len(other_classes))
    moved_values = torch.stack(moved) if moved else distinct.values[:0]
    moved_classes, row_numbers = torch.tensor(classes, dtype=torch.int64), torch.tensor(row, dtype=torch.int64)
    least, most = torch.tensor(limits, dtype=torch.int64).reshape(-1, 2).unbind(1)
    in_class = moved_classes != distinct.classes[row_numbers]
    return _Moves(moved_values, moved_classes, row_numbers, in_class, least, most)


def _moves_of_values(
    values: Tensor, columns: TableColumns, *, only_numbers: bool
) -> list[tuple[Tensor, tuple[int, int]]]:
    """Values ``(C,)`` after each move of a row, and how often the move can be made, at least and at most."""
    moves = list[tuple[Tensor, tuple[int, int]]]()
    for column, size in enumerate(columns.sizes):
        level = int(values[column])
        if not bool(columns.is_category[column]):
            # To the next level, or from the highest one to the one before; often enough to reach all levels.
            if level + 1 < size:
                moves.append((_with_value(values, column, level + 1), (-level, size - 1 - level)))
            else:
                moves.append((_with_value(values, column, level - 1), (level + 1 - size, level)))
        elif not only_numbers:
            # To each other category, which can be once.
            others = [value for value in range(size) if value != level]
            moves += [(_with_value(values, column, value), (0, 1)) for value in others]
    return moves


def _with_value(values: Tensor, column: int, value: int) -> Tensor:
    changed = values.clone()
    changed[column] = value
    return changed


def _gram(single: _Differences, made: Tensor) -> Tensor:
    """``(L + 1, L + 1)`` scalar products of the changes of the update by single moves, and last by another rate."""
    with_whole = single.along(made)
    last = torch.cat([with_whole, made.square().sum()[None]])
    return torch.cat([torch.cat([single.products(single), with_whole[:, None]], dim=1), last[None]])


def _inverse(gram: Tensor) -> Tensor:
    """Inverse, in which directions of length 0 are very long, not infinite."""
    scale = gram.diagonal().clamp(min=1e-300).sqrt()
    values, directions = torch.linalg.eigh(gram / scale[:, None] / scale)
    shortest = torch.finfo(torch.float64).eps * max(len(values), 1)
    inverse: Tensor = (directions / values.clamp(min=shortest)) @ directions.T / scale[:, None] / scale
    return inverse


def _least_changes(gram: Tensor, moves: _Moves, rows: int) -> Tensor:
    """``(M,)`` least change of the update over the rate, to first order, where each row differs."""
    inverse = _inverse(gram)
    least = torch.full((rows,), torch.inf, dtype=torch.float64)
    for number in range(rows):
        of_row = ((moves.row == number) & ~moves.in_class).nonzero().flatten()
        if len(of_row):
            least[number] = torch.linalg.eigvalsh(inverse[of_row][:, of_row])[-1].clamp(min=1e-300).rsqrt()
    return least


def _short_vectors(gram: Tensor, moves: _Moves, doubtful: Tensor, length: float) -> tuple[Tensor, Tensor] | None:
    """Numbers of the moves of doubtful rows, and ``(S, U)`` whole numbers of them that hardly change the update.

    To first order, they change it by less than a length, over the rate, where moves of other rows, of classes and of
    the rate are free real numbers. None if there are too many vectors.
    """
    whole = (doubtful[moves.row] & ~moves.in_class).nonzero().flatten()
    left = torch.linalg.inv(_inverse(gram)[whole][:, whole])
    # Visible moves first: the last ones, which have the widest ranges, are chosen first.
    order = _pivots(left)
    whole, left = whole[order], left[order][:, order]
    vectors = _vectors_within(left, moves.least[whole].tolist(), moves.most[whole].tolist(), length)
    return None if vectors is None else (whole, vectors)


def _vectors_within(gram: Tensor, least: Sequence[int], most: Sequence[int], length: float) -> Tensor | None:
    """``(S, U)`` whole numbers d within ranges with ``d^T gram d <= length^2``; None if there are too many.

    With the Cholesky factor R of the Gram matrix, ``d^T gram d = sum_k (R d)_k^2``, so the last number of d has a
    range, and each earlier one a range that depends on the later ones (Fincke and Pohst).

    References:
        Fincke and Pohst, "Improved methods for calculating vectors of short length in a lattice", Mathematics of
        Computation 1985.
    """
    factor = torch.linalg.cholesky_ex((gram + gram.T) / 2).L.T.numpy()
    if not np.isfinite(factor).all() or (factor.diagonal() <= 0).any():
        return None
    short, looked_at = list[tuple[int, ...]](), 0
    # Partial vectors: numbers that are not chosen, the chosen ones after them, and what is left of the squared length.
    partial: list[tuple[int, tuple[int, ...], float]] = [(len(gram), (), length**2)]
    while partial:
        place, later, room = partial.pop()
        if place == 0:
            short.append(later)
            continue
        place -= 1
        scale = factor[place, place]
        center = -float(factor[place, place + 1 :] @ np.array(later, dtype=float)) / scale
        reach = room**0.5 / scale
        lowest = max(least[place], math.ceil(center - reach))
        highest = min(most[place], math.floor(center + reach))
        looked_at += max(highest - lowest + 1, 0)
        if looked_at > _MOST_VECTORS:
            return None
        for number in range(lowest, highest + 1):
            partial.append((place, (number, *later), max(room - (scale * (number - center)) ** 2, 0.0)))
    return torch.tensor(short, dtype=torch.int64).reshape(len(short), len(gram))


def _moved_by(
    short: tuple[Tensor, Tensor] | None,
    doubtful: Tensor,
    moves: _Moves,
    single: _Differences,
    made: Tensor,
    distinct: DistinctRows,
    changes: RowChanges,
    length: float,
) -> Tensor:
    """``(M,)`` bool, which doubtful rows become others in a vector of moves that changes the update by less.

    The change is computed exactly, not to first order. Vectors that give the same rows in another order are left out.
    """
    if short is None:
        return doubtful
    numbers, vectors = short
    # The rows that each vector changes, and what they become, unless it only puts the same rows in another order.
    became = dict[tuple[int, tuple[int, ...]], int]()  # moved rows, each once
    sets = list[list[int]]()
    for vector in vectors[vectors.any(1)]:
        after = _rows_after(vector, numbers, moves, distinct)
        before = [(tuple(distinct.values[row].tolist()), int(distinct.classes[row])) for row in after]
        if Counter(before) != Counter((values, int(distinct.classes[row])) for row, values in after.items()):
            sets.append([became.setdefault(moved, len(became)) for moved in after.items()])
    moved_rows = torch.zeros_like(doubtful)
    if not sets:
        return moved_rows
    # What each moved row changes, without what moves of other rows, of classes and of the rate can make up for.
    row = torch.tensor([row for row, _ in became])
    values = torch.tensor([list(values) for _, values in became])
    exact = _Differences.of(values, distinct.classes[row], row, distinct, changes)
    others = torch.ones(len(moves.row) + 1, dtype=torch.bool)
    others[numbers] = False
    free = _gram(single, made)[others][:, others]
    with_free = torch.cat([exact.products(single), exact.along(made)[:, None]], dim=1)[:, others]
    left = exact.products(exact) - with_free @ _inverse(free) @ with_free.T
    # The changes by the rows of one vector add up.
    for together in sets:
        if float(left[together][:, together].sum()) < length**2:
            moved_rows[row[together]] = True
    return moved_rows


def _rows_after(vector: Tensor, numbers: Tensor, moves: _Moves, distinct: DistinctRows) -> dict[int, tuple[int, ...]]:
    """Values of the rows that a vector of moves changes, by number of the row."""
    after = dict[int, Tensor]()
    for place in vector.nonzero().flatten().tolist():
        move = int(numbers[place])
        row = int(moves.row[move])
        step = moves.values[move] - distinct.values[row]
        after[row] = after.get(row, distinct.values[row]) + int(vector[place]) * step
    return {row: tuple(values.tolist()) for row, values in after.items()}


def _pivots(gram: Tensor) -> Tensor:
    """Order in which each vector has the most left outside of the span of the ones before it."""
    left, order = gram.clone(), list[int]()
    open_places = torch.ones(len(gram), dtype=torch.bool)
    for _ in range(len(gram)):
        place = int(left.diagonal().masked_fill(~open_places, -torch.inf).argmax())
        order.append(place)
        open_places[place] = False
        along = left[:, place] / left[place, place].clamp(min=1e-300)
        left = left - along[:, None] * left[place]
    return torch.tensor(order)


def copies_apart(distinct: DistinctRows, number: int, changes: RowChanges) -> float:
    """Least change of the update over the rate where two copies of a row go to different sides of it."""
    values, label = distinct.values[number], int(distinct.classes[number])
    steps = _level_steps(changes)
    if not len(steps):
        return float("inf")

    def changed_by(moved: Tensor) -> Tensor:
        return changes.biases(moved)[:, label, :, None] * changes.points(moved)[:, None, :]

    # Levels beyond the range are no rows, but their changes are near those of rows.
    difference = changed_by(values + steps) + changed_by(values - steps) - 2 * changed_by(values[None])
    return float(difference.flatten(1).norm(dim=1).min())


def further_direction(distinct: DistinctRows, number: int, changes: RowChanges) -> float:
    """Least singular value that two rows on both sides of a row, in place of it, add to the update over the rate.

    The rows of the update span as many dimensions as it has rows, unless their changes of the bias are dependent. If
    they are so to rounding, of two rows only a mean is seen, which may be a possible row.
    """
    steps = _level_steps(changes)
    if not len(steps):
        return float("inf")
    points, biases = distinct.changed_by(changes)
    others = torch.arange(len(points)) != number
    values, label = distinct.values[number], int(distinct.classes[number])
    least = float("inf")
    for step in steps:
        pair = torch.stack([values + step, values - step])
        all_points = torch.cat([points[others], changes.points(pair)])
        all_biases = torch.cat([biases[others], changes.biases(pair)[:, label]])
        if len(all_points) > min(all_points.shape[1], all_biases.shape[1]):
            return 0.0
        # The singular values of a product of matrices are those of the product of their triangular factors.
        factors = [torch.linalg.qr(matrix.T, mode="r")[1] for matrix in (all_biases, all_points)]
        least = min(least, float(torch.linalg.svdvals(factors[0] @ factors[1].T)[-1]))
    return least


def _level_steps(changes: RowChanges) -> Tensor:
    """``(S, C)`` steps of one level of one number, or of two numbers, up or down."""
    numbers = (~changes.columns.is_category).nonzero().flatten().tolist()
    steps = list[Tensor]()
    for place, first in enumerate(numbers):
        for second in numbers[: place + 1]:
            for sign in (-1, 1) if second != first else (0,):
                step = torch.zeros(len(changes.columns.sizes), dtype=torch.int64)
                step[first] += 1
                step[second] += sign
                steps.append(step)
    return torch.stack(steps) if steps else torch.zeros(0, len(changes.columns.sizes), dtype=torch.int64)
