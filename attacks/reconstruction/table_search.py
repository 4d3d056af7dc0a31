"""Rows of a table on a known grid: by ratios and peeling, then among all possible rows, then by another search."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.found_records import FoundRecords
from fedleak.attacks.reconstruction.peeled_rows import NEAR, DistinctRows, RowChanges, nearest_rows, peel_rows
from fedleak.attacks.reconstruction.record_candidates import RecordErrors
from fedleak.attacks.reconstruction.row_certificate import certain_copies, certified_rows, is_explained
from fedleak.core.table_columns import TableColumns

_LIVE = 1e-4
"""Share of the largest change of a bias from which on a ratio is shown as a record that is not certain."""


@dataclass(frozen=True)
class TableUpdate:
    """Update of a layer by a client's rows on a known grid, and what is known of the client.

    Attributes:
        rows: ``(N, D + 1)`` float64 change of weight and bias.
        count: number of the client's rows.
        columns: the grid of the numbers, and the categories.
        errors: changes of the bias at the global model; None if the clients' algorithm of one step is unknown.
        rate: the rate that follows from the reported number of examples; None if unknown.
        floor: length of the rounding of the rows.
        precision: relative precision of the recorded numbers.
    """

    rows: Tensor
    count: int
    columns: TableColumns
    errors: RecordErrors | None
    rate: float | None
    floor: float
    precision: float

    def certified(self, distinct: DistinctRows, errors: RecordErrors) -> FoundRecords:
        """All copies of rows, with those certain that no other rows can replace (`certified_rows`)."""
        as_reported = _as_many(distinct, self.count)
        certain = certified_rows(
            self.rows,
            as_reported,
            RowChanges(self.columns, errors),
            floor=self.floor,
            precision=self.precision,
            declared_rate=self.rate,
        )
        return _records(as_reported, self.columns, certain)


def search_table(
    update: TableUpdate, listed: Callable[[], FoundRecords | None], search: Callable[[], FoundRecords]
) -> FoundRecords:
    """Rows of a client on a known grid, however many rows are possible.

    1. `peel_rows`: ratios of neurons that one row excites alone, which are subtracted. If these rows make the update,
       and all are certain, they are the client's.
    2. The search over all possible rows, where they can be listed. If any of its rows is certain, these are returned.
    3. The rows of 1. if they make the update, then a search that finds all rows or none.
    4. The rows of 2., else those of 1., and other ratios, the nearest to possible rows first. None is certain.

    Without the clients' algorithm of one step there are ratios only, and possible rows.

    Args:
        update: the update, and what is known of the client.
        listed: the search over all possible rows; None of them if they cannot be listed.
        search: another search, for rows that excite no neuron alone.
    """
    peeled = DistinctRows.of({}, update.columns)
    explained: FoundRecords | None = None
    # 1. Ratios, which need what each row changes.
    if update.errors is not None:
        changes = RowChanges(update.columns, update.errors)
        peeled = peel_rows(update.rows, changes, rate=update.rate)
        if is_explained(update.rows, peeled, changes, floor=update.floor):
            explained = update.certified(peeled, update.errors)
            if bool(explained.certain.all()):
                return explained
    # 2. All possible rows.
    possible = listed()
    if possible is not None and bool(possible.certain.any()):
        return possible
    # 3. Rows that make the update, though others may do so too.
    if explained is not None:
        return explained
    if possible is not None:
        return _with_near_ratios(possible, update)
    if update.errors is not None:
        records = search()
        if len(records.records):
            return update.certified(distinct_rows(records, update.columns), update.errors)
    # 4. What looks like rows.
    return _with_ratios(peeled, update)


def distinct_rows(records: FoundRecords, columns: TableColumns) -> DistinctRows:
    """The possible rows nearest to records, equal ones together."""
    values = columns.decode(records.records).tolist()
    pairs = zip(values, records.classes.tolist(), strict=True)
    return DistinctRows.of(Counter((tuple(row), label) for row, label in pairs), columns)


def _as_many(distinct: DistinctRows, count: int) -> DistinctRows:
    """The rows with as many copies in all as the client reports, if that is a multiple of theirs."""
    total = int(distinct.copies.sum())
    if not total or count % total:
        return distinct
    return replace(distinct, copies=count // total * distinct.copies)


def _records(distinct: DistinctRows, columns: TableColumns, certain: Tensor) -> FoundRecords:
    """All copies of the rows."""
    copies = distinct.copies
    return FoundRecords(
        columns.encode(distinct.values).repeat_interleave(copies, 0),
        distinct.classes.repeat_interleave(copies),
        certain_copies(copies) & certain.repeat_interleave(copies),
    )


def _ratios(update: TableUpdate) -> tuple[Tensor, Tensor]:
    """Values ``(M, C)`` of the possible rows nearest to ratios, and their distances ``(M,)``, the least first."""
    bias = update.rows[:, -1].abs()
    live_rows = update.rows[bias > _LIVE * bias.max()]
    values, distances = nearest_rows(update.columns, live_rows[:, :-1] / live_rows[:, -1:])
    order = distances.argsort()
    return values[order], distances[order]


def _with_near_ratios(possible: FoundRecords, update: TableUpdate) -> FoundRecords:
    """Rows that are not certain, and ratios near the grid that are not among them."""
    values, distances = _ratios(update)
    possible_values = set(map(tuple, update.columns.decode(possible.records).tolist()))
    near = dict.fromkeys(map(tuple, values[distances < NEAR].tolist()))  # each once, the nearest first
    new = [list(row) for row in near if row not in possible_values]
    if not new:
        return possible
    return FoundRecords(
        torch.cat([possible.records, update.columns.encode(torch.tensor(new))]),
        torch.cat([possible.classes, torch.full((len(new),), -1)]),
        torch.cat([possible.certain, torch.zeros(len(new), dtype=torch.bool)]),
    )


def _with_ratios(distinct: DistinctRows, update: TableUpdate) -> FoundRecords:
    """The rows found and the nearest possible rows to other ratios, as many as the client has; none is certain."""
    peeled = [tuple(row) for row in distinct.values.tolist()]
    copies = dict(zip(peeled, distinct.copies.tolist(), strict=True))
    classes = dict(zip(peeled, distinct.classes.tolist(), strict=True))
    for values in _ratios(update)[0].tolist():
        row = tuple(values)
        if sum(copies.values()) < update.count and row not in copies:
            copies[row] = 1
            classes[row] = -1
    copies_by_class = {(row, classes[row]): number for row, number in copies.items()}
    shown = DistinctRows.of(copies_by_class, update.columns)
    return _records(shown, update.columns, torch.zeros(len(shown.values), dtype=torch.bool))
