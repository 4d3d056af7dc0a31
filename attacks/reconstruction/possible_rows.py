"""Rows of a table whose possible rows can be listed: how often each occurs, certified by the whole update."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.linear_algebra import along_and_outside, row_space
from fedleak.attacks.reconstruction.copy_certificate import are_only_copies
from fedleak.attacks.reconstruction.copy_numbers import (
    are_near,
    copy_numbers,
    proportional_copies,
    total_rows,
    with_copies,
)
from fedleak.attacks.reconstruction.found_records import FoundRecords
from fedleak.attacks.reconstruction.nonnegative_least_squares import nonnegative_least_squares
from fedleak.attacks.reconstruction.peeled_rows import DistinctRows, RowChanges
from fedleak.attacks.reconstruction.possible_changes import PossibleChanges
from fedleak.attacks.reconstruction.row_certificate import certain_copies, certified_rows
from fedleak.attacks.reconstruction.split_rows import further_direction

MOST_POSSIBLE = 2**23
"""Largest number of possible rows, times neurons: 64 MiB for each class."""
_APART = 4.0
"""Times the rounding of the update by which another set of rows must miss it, for a certificate."""
_MOST_CHOSEN = 3
"""Times as many rows as the client has records at which least squares stops: it fits the rounding from there on."""
_GROWN = 1.2
"""Times as many rows chosen as at the last attempt at which the numbers of a sum are repaired again."""
_CHEAP = 2**14
"""Number of scalar products of chosen and possible rows up to which numbers of a sum are repaired at every pass."""
_MANY = 1.5
"""Times the client's number of rows from which on the update is taken for that of a sum."""
_COARSE = 0.01
"""Share of an update of several steps below which a scalar product with what is left is 0, as its model is another."""


@dataclass(frozen=True, kw_only=True)
class _Update:
    """The arguments of `search_possible`."""

    rows: Tensor
    count: int
    changes: RowChanges
    floor: float
    precision: float
    one_step: bool
    rate: float | None


def search_possible(
    rows: Tensor,
    count: int,
    changes: RowChanges,
    *,
    floor: float,
    precision: float,
    one_step: bool,
    rate: float | None = None,
) -> FoundRecords:
    """The rows of a client, as many as it reports, among all possible rows of its table.

    Of a secure sum whose clients report a number each, the number of all rows is unknown, but the rate of one row is
    known: each weight of least squares over the rate is about a number of copies. In single precision many are off by
    one, and so is their sum; exchanges, additions and removals of single rows repair them until the step is the update.

    After one step, ``-rows = rate * sum_i n_i c_i [x_i, 1]^T`` for the possible rows x_i of each class with their
    changes c_i of the bias at the global model, and numbers n_i of copies that are whole and not negative. Least
    squares without negative numbers gives them all at once, for any number of records and sums of clients; their sum
    is the number of records, which gives the rate.

    All are certain if the step made again is the update up to its rounding, and no other possible row may replace any:
    with s the smallest singular value of the changes by the rows found, and d the least distance of another possible
    row's from their span, other numbers of the rows found miss the update by at least ``rate * s``, and those with one
    further row by ``rate * d``. Both must be four times the rounding, but for a further row that is a sum of rows found
    with weights whose sum is not 1: such an exchange changes the number of records. (The changes by one row of all
    classes, weighted by their probabilities, add up to 0.) In a sum, whose number of records is inferred, such an
    exchange is excluded only if no number of copies of the further row, up to twice as many records in all, leaves
    whole numbers of the others, none negative: a rest f at a row whose change has distance h from the span of the
    others' misses the update by ``rate * f * h`` at least, again four times the rounding. That several further rows
    cancel each other to rounding is not excluded, as it would take a coincidence of all numbers of the update.

    The rate is that of the reported number of examples, or fits best. So the numbers of copies are known up to a common
    factor only, and of n_i copies those are certain that remain after it is taken out, see `certain_copies`.

    After several steps the changes are those of other models, so the numbers are near the true ones at most, and are
    certain for no row. But as ``weight = C^T X`` holds with any C, all rows are in the row space of the update: if the
    possible rows in it are no more than its rank, each is a record, and certain once. Two rows on both sides of a
    possible one, whose changes of the bias are the same to rounding, would hide in it: the dimension that they add
    (`further_direction`) must have a singular value of four times the rounding.

    Args:
        rows: ``(N, E + 1)`` float64 change of weight and bias.
        count: number of the client's records.
        changes: what each possible row changes.
        floor: length of the rounding of the rows.
        precision: relative precision of the recorded numbers.
        one_step: whether the clients made one step at that model.
        rate: what a row's change is multiplied by in the update of a client with `count` rows; None if unknown.

    References:
        [Lawson74], chapter 23. This project, for the certificates.
    """
    update = _Update(
        rows=rows,
        count=count,
        changes=changes,
        floor=floor,
        precision=precision,
        one_step=one_step,
        rate=rate,
    )
    values = changes.columns.every()
    points = changes.points(values)
    # Few possible rows are in the row space of the update: they come first.
    inside, rank = _in_span(points, rows, floor)
    records = _solved(update, points[inside], values[inside], rank=rank)
    if bool(records.certain.any()) or len(inside) == len(points):
        return records
    if len(inside) and not one_step:
        return records
    return _solved(update, points, values, rank=0)  # rounding may hide directions


def _solved(update: _Update, points: Tensor, values: Tensor, *, rank: int) -> FoundRecords:
    """Rows of a client among those of ``values (M, C)``; all are its records if there are as many as the rank.

    The layer gets their ``points (M, E + 1)``.
    """
    rows, changes, floor = update.rows, update.changes, update.floor
    records = changes.records(values)
    if not len(points):
        return FoundRecords(records, torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.bool))
    biases = changes.biases(values)
    kinds = biases.shape[1]
    possible = PossibleChanges(
        points=points,
        changes=biases.flatten(0, 1),
        row=torch.arange(len(points)).repeat_interleave(kinds),
        label=torch.arange(kinds).repeat(len(points)),
    )
    chosen, copies = _CopySearch(update, possible).run()
    distinct = DistinctRows(values[possible.row[chosen]], possible.label[chosen], copies)
    certain = torch.zeros(int(copies.sum()), dtype=torch.bool)
    is_sum = int(copies.sum()) != update.count
    if update.one_step and are_only_copies(rows, possible, chosen, copies, floor, is_sum=is_sum):
        apart = certified_rows(
            rows,
            distinct,
            changes,
            floor=floor,
            precision=update.precision,
            declared_rate=update.rate,
            only_numbers=True,
        )
        certain = certain_copies(copies) & apart.repeat_interleave(copies)
    elif len(points) == rank == len(torch.unique(possible.row[chosen])):
        # As many possible rows in the row space as it has dimensions: each is a record, unless two rows on both sides
        # of it add no visible dimension.
        _, row_rate = possible.misfit(rows, chosen, copies)
        visible = [row_rate * further_direction(distinct, number, changes) for number in range(len(chosen))]
        apart = torch.tensor(visible, dtype=torch.float64) >= _APART * floor
        certain = _first_copies(possible.row[chosen], copies) & apart.repeat_interleave(copies)
    copied = chosen.repeat_interleave(copies)
    return FoundRecords(records[possible.row[copied]], possible.label[copied], certain)


class _CopySearch:
    """Least squares over possible rows, until whole numbers of copies of the rows chosen so far explain the update.

    Args:
        update: the update, and what is known of the client.
        possible: what the possible rows change.
    """

    def __init__(self, update: _Update, possible: PossibleChanges) -> None:
        self.update = update
        self.possible = possible
        self.exact: tuple[Tensor, Tensor] | None = None
        self.failed_at = 0
        """Number of rows chosen at the last attempt at the numbers of a sum."""

    def run(self) -> tuple[Tensor, Tensor]:
        """Numbers ``(m,)`` of possible rows and their copies: those that explain the update, else the nearest."""
        update = self.update
        # The model of several steps is another one, so that what is left is no rounding.
        chosen, weights = nonnegative_least_squares(
            self.possible.products,
            self.possible.along(-update.rows),
            self.possible.squares,
            floor=update.floor if update.one_step else _COARSE * float(update.rows.norm()),
            is_enough=self.is_enough,
        )
        if update.one_step and self.exact is None and len(chosen) != self.failed_at:
            total = total_rows(weights, update.count, update.rate)
            self.is_exact(chosen, weights, at_rate=total >= _MANY * update.count)
        if self.exact is not None:
            return self.exact
        return with_copies(chosen, proportional_copies(weights, update.count))

    def is_enough(self, chosen: Tensor, weights: Tensor) -> bool:
        """Whether the rows chosen explain the update, or are so many that they fit its rounding."""
        update = self.update
        total = total_rows(weights, update.count, update.rate)
        is_sum = update.one_step and total >= _MANY * update.count
        # To repair the numbers of a sum takes long: only if they are near, and a fifth more rows than at the last try.
        has_grown = is_sum and len(chosen) >= _GROWN * self.failed_at
        is_near = has_grown and are_near(update.rows, self.possible, chosen, weights, update.count, total)
        if is_near:
            self.failed_at = len(chosen)
        is_cheap = len(chosen) * len(self.possible.row) <= _CHEAP
        is_tried = update.one_step and (is_near or not is_sum or is_cheap)
        if is_tried and self.is_exact(chosen, weights, at_rate=is_near):
            return True
        return len(chosen) > _MOST_CHOSEN * total

    def is_exact(self, chosen: Tensor, weights: Tensor, *, at_rate: bool) -> bool:
        """Whether whole numbers of the rows chosen explain the update, which are kept."""
        self.exact = copy_numbers(
            self.update.rows,
            self.possible,
            chosen,
            weights,
            count=self.update.count,
            rate=self.update.rate,
            floor=self.update.floor,
            at_rate=at_rate,
        )
        return self.exact is not None


def _first_copies(row: Tensor, copies: Tensor) -> Tensor:
    """``(sum,)`` bool, the first of the copies of each possible row, in whatever classes they are."""
    row_of_copy = row.repeat_interleave(copies)
    is_same = row_of_copy[:, None] == row_of_copy
    return ~is_same.tril(-1).any(1)


def _in_span(points: Tensor, rows: Tensor, floor: float) -> tuple[Tensor, int]:
    """Numbers of the points that are in the row space of the rows up to rounding, and its dimension."""
    values, basis = row_space(rows)
    rank = int((values > floor).sum())
    if rank == 0:
        return torch.arange(0), 0
    along, outside = along_and_outside(points, basis[:rank])
    # The rounding turns the directions of small singular values most.
    allowed = _APART * floor * (along / values[:rank]).norm(dim=1) + 1e-6
    inside = (outside.norm(dim=1) <= allowed).nonzero().flatten()
    return inside, rank
