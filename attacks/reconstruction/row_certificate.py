"""Whether rows whose step is the update are the client's: no other rows make the same update."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.peeled_rows import DistinctRows, RowChanges
from fedleak.attacks.reconstruction.row_moves import RowMoves, row_moves
from fedleak.attacks.reconstruction.short_vectors import pivoted_order, vectors_within
from fedleak.attacks.reconstruction.split_rows import copies_apart
from fedleak.attacks.reconstruction.update_differences import UpdateDifferences

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


@dataclass(frozen=True)
class _FirstOrder:
    """Changes J of the update by single moves of rows, to first order.

    Attributes:
        moves: the L moves.
        single: the change of the update by each.
        simulated: ``(N, D + 1)`` the step over its rate: the change by another rate.
        gram: ``(L + 1, L + 1)`` scalar products ``J^T J`` of all of them, the rate last.
    """

    moves: RowMoves
    single: UpdateDifferences
    simulated: Tensor
    gram: Tensor


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
    nothing = torch.zeros(len(distinct.values), dtype=torch.bool)
    if not len(nothing):
        return nothing
    points, biases = distinct.changed_by(changes)
    simulated, rate = remade_step(rows, distinct, points, biases)
    misfit = float((rows + rate * simulated).norm())
    moves = row_moves(distinct, changes, only_numbers=only_numbers)
    if rate <= 0 or misfit > floor or len(moves.values) > _MOST_MOVES:
        return nothing
    # Other rows must change the update by four times the rounding: twice what the rows found leave, if that is between
    # the client's own precision and the floor.
    rounding = min(floor, max(2 * misfit, _PRECISE * precision * float(rows.norm())))
    longest = float((biases.norm(dim=1) * points.norm(dim=1)).max())
    needed = _APART * max(rounding / rate, _RESOLVED * longest)
    single = UpdateDifferences.of(moves.values, moves.classes, moves.row, distinct, changes)
    first_order = _FirstOrder(moves, single, simulated, _gram(single, simulated))
    is_apart = _least_changes(first_order, len(points)) >= needed
    if not bool(is_apart.all()):
        # Of the rows that fail with real numbers of moves, those stay certain that whole numbers do not move.
        short = _short_vectors(first_order, ~is_apart, needed)
        is_apart |= ~_moved_by(short, ~is_apart, first_order, distinct, changes, needed)
    # Copies may move to both sides of a row; so may rows of which there are more than the client reports.
    may_be_several = distinct.copies > 1
    may_be_several |= declared_rate is not None and rate > _LARGER * declared_rate
    for number in (is_apart & may_be_several).nonzero().flatten().tolist():
        is_apart[number] = copies_apart(distinct, number, changes) >= _APART * rounding / rate
    return is_apart


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
    number_among_copies = torch.cat([torch.arange(int(number)) for number in copies] or [copies])
    return number_among_copies < (copies // common).repeat_interleave(copies)


def remade_step(rows: Tensor, distinct: DistinctRows, points: Tensor, biases: Tensor) -> tuple[Tensor, float]:
    """``(N, D + 1)`` sum of the changes by all copies, and the rate at which it fits ``rows (N, D + 1)`` best."""
    simulated = torch.einsum("m,mn,md->nd", distinct.copies.double(), biases, points)
    # -rows = rate * simulated in least squares.
    rate = float(-(simulated * rows).sum() / simulated.square().sum().clamp(min=1e-300))
    return simulated, rate


def is_explained(rows: Tensor, distinct: DistinctRows, changes: RowChanges, *, floor: float) -> bool:
    """Whether a step with the rows found is the update, up to a length."""
    points, biases = distinct.changed_by(changes)
    simulated, rate = remade_step(rows, distinct, points, biases)
    return rate > 0 and float((rows + rate * simulated).norm()) <= floor


def _gram(single: UpdateDifferences, simulated: Tensor) -> Tensor:
    """``(L + 1, L + 1)`` scalar products of the changes of the update by single moves, and last by another rate."""
    with_rate = single.along(simulated)
    rate_row = torch.cat([with_rate, simulated.square().sum()[None]])
    return torch.cat([torch.cat([single.products(single), with_rate[:, None]], dim=1), rate_row[None]])


def _inverse(gram: Tensor) -> Tensor:
    """Inverse, in which directions of length 0 are very long, not infinite."""
    # Scaled to a diagonal of 1, so that the shortest eigenvalue that double precision resolves is the same for all.
    scale = gram.diagonal().clamp(min=1e-300).sqrt()
    values, directions = torch.linalg.eigh(gram / scale[:, None] / scale)
    shortest = torch.finfo(torch.float64).eps * max(len(values), 1)
    inverse: Tensor = (directions / values.clamp(min=shortest)) @ directions.T / scale[:, None] / scale
    return inverse


def _least_changes(first_order: _FirstOrder, rows: int) -> Tensor:
    """``(M,)`` least change of the update over the rate, to first order, where each row differs."""
    inverse = _inverse(first_order.gram)
    moves = first_order.moves
    least = torch.full((rows,), torch.inf, dtype=torch.float64)
    for number in range(rows):
        of_row = ((moves.row == number) & ~moves.in_class).nonzero().flatten()
        if len(of_row):
            # min |J d| over |d_i| >= 1 is 1 / sqrt(largest eigenvalue of ((J^T J)^-1)_ii).
            least[number] = torch.linalg.eigvalsh(inverse[of_row][:, of_row])[-1].clamp(min=1e-300).rsqrt()
    return least


def _short_vectors(first_order: _FirstOrder, doubtful: Tensor, length: float) -> tuple[Tensor, Tensor] | None:
    """Numbers of the moves of doubtful rows, and ``(S, U)`` whole numbers of them that hardly change the update.

    To first order, they change it by less than a length, over the rate, where moves of other rows, of classes and of
    the rate are free real numbers. None if there are too many vectors.
    """
    moves = first_order.moves
    numbers = (doubtful[moves.row] & ~moves.in_class).nonzero().flatten()
    # The inverse of a block of the inverse is the Gram matrix without what the other moves can make up for.
    remaining = torch.linalg.inv(_inverse(first_order.gram)[numbers][:, numbers])
    # Visible moves first: the last ones, which have the widest ranges, are chosen first.
    order = pivoted_order(remaining)
    numbers = numbers[order]
    remaining = remaining[order][:, order]
    vectors = vectors_within(remaining, moves.least[numbers].tolist(), moves.most[numbers].tolist(), length)
    return None if vectors is None else (numbers, vectors)


def _moved_by(
    short: tuple[Tensor, Tensor] | None,
    doubtful: Tensor,
    first_order: _FirstOrder,
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
    number_of = dict[tuple[int, tuple[int, ...]], int]()  # of each different moved row
    sets = list[list[int]]()
    for vector in vectors[vectors.any(1)]:
        rows_after = _rows_after(vector, numbers, first_order.moves, distinct)
        if not _are_same_rows(rows_after, distinct):
            sets.append([number_of.setdefault(moved, len(number_of)) for moved in rows_after.items()])
    is_moved = torch.zeros_like(doubtful)
    if not sets:
        return is_moved
    # What each moved row changes, without what moves of other rows, of classes and of the rate can make up for.
    row = torch.tensor([row for row, _ in number_of])
    values = torch.tensor([list(values) for _, values in number_of])
    exact = UpdateDifferences.of(values, distinct.classes[row], row, distinct, changes)
    is_free = torch.ones(len(first_order.gram), dtype=torch.bool)
    is_free[numbers] = False
    free_gram = first_order.gram[is_free][:, is_free]
    with_rate = exact.along(first_order.simulated)[:, None]
    with_free = torch.cat([exact.products(first_order.single), with_rate], dim=1)[:, is_free]
    remaining = exact.products(exact) - with_free @ _inverse(free_gram) @ with_free.T
    # The changes by the rows of one vector add up.
    for together in sets:
        if float(remaining[together][:, together].sum()) < length**2:
            is_moved[row[together]] = True
    return is_moved


def _are_same_rows(rows_after: Mapping[int, tuple[int, ...]], distinct: DistinctRows) -> bool:
    """Whether rows with other values are the same rows as before, in another order."""
    before, after = Counter[tuple[tuple[int, ...], int]](), Counter[tuple[tuple[int, ...], int]]()
    for row, values in rows_after.items():
        label = int(distinct.classes[row])
        before[tuple(distinct.values[row].tolist()), label] += 1
        after[values, label] += 1
    return before == after


def _rows_after(vector: Tensor, numbers: Tensor, moves: RowMoves, distinct: DistinctRows) -> dict[int, tuple[int, ...]]:
    """Values of the rows that a vector of moves changes, by number of the row."""
    values_after = dict[int, Tensor]()
    for index in vector.nonzero().flatten().tolist():
        move = int(numbers[index])
        row = int(moves.row[move])
        step = moves.values[move] - distinct.values[row]
        values_after[row] = values_after.get(row, distinct.values[row]) + int(vector[index]) * step
    return {row: tuple(values.tolist()) for row, values in values_after.items()}
