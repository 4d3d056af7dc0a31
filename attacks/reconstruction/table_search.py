"""Rows of a table with more possible rows than can be listed: by ratios and peeling, then another search."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from attacks.reconstruction.peeled_rows import DistinctRows, RowChanges, nearest_rows, peel_rows
from attacks.reconstruction.record_span import RecordErrors
from attacks.reconstruction.record_supports import FoundRecords, certain_copies
from attacks.reconstruction.row_certificate import certified_rows, is_explained
from protocol.table_columns import TableColumns

_LIVE = 1e-4
"""Share of the largest change of a bias from which on a ratio is shown as a record that is not certain."""


def search_table(
    rows: Tensor,
    count: int,
    columns: TableColumns,
    errors: RecordErrors | None,
    *,
    rate: float | None,
    floor: float,
    precision: float,
    search: Callable[[], FoundRecords],
) -> FoundRecords:
    """Rows of a client on a known grid, however many rows are possible.

    1. `peel_rows`: ratios of neurons that one row excites alone, which are subtracted.
    2. If these are not the whole update, `search`, which finds all rows or none.
    3. If it finds none either, those of 1., and as many of the other ratios as the client has rows, the nearest to
       possible rows first. None of these is certain.

    All rows of the client are certain if they make the update, and no others do (`certified_rows`). Without the
    clients' algorithm of one step there are ratios only.

    Args:
        rows: ``(N, D + 1)`` float64 change of weight and bias.
        count: number of the client's rows.
        columns: the grid of the numbers, and the categories.
        errors: changes of the bias at the global model; None if unknown.
        rate: the rate that follows from the reported number of examples; None if unknown.
        floor: length of the rounding of the rows.
        precision: relative precision of the recorded numbers.
        search: another search, for rows that excite no neuron alone.
    """
    if errors is None:
        return _with_ratios(DistinctRows.of({}, columns), rows, count, columns)
    changes = RowChanges(columns, errors)
    peeled = peel_rows(rows, changes, rate=rate)
    if not is_explained(rows, peeled, changes, floor=floor):
        records = search()
        if not len(records.records):
            return _with_ratios(peeled, rows, count, columns)
        peeled = distinct_rows(records, columns)
    distinct = _as_many(peeled, count)
    certain = certified_rows(rows, distinct, changes, floor=floor, precision=precision, declared_rate=rate)
    return _records(distinct, columns, certain)


def distinct_rows(records: FoundRecords, columns: TableColumns) -> DistinctRows:
    """The possible rows nearest to records, equal ones together."""
    values = columns.decode(records.records).tolist()
    pairs = zip(values, records.classes.tolist(), strict=True)
    return DistinctRows.of(Counter((tuple(row), label) for row, label in pairs), columns)


def _as_many(distinct: DistinctRows, count: int) -> DistinctRows:
    """The rows with as many copies in all as the client reports, if that is a multiple of theirs."""
    total = int(distinct.copies.sum())
    times = count // total if total and count % total == 0 else 1
    return replace(distinct, copies=times * distinct.copies)


def _records(distinct: DistinctRows, columns: TableColumns, certain: Tensor) -> FoundRecords:
    """All copies of the rows."""
    copies = distinct.copies
    return FoundRecords(
        columns.encode(distinct.values).repeat_interleave(copies, 0),
        distinct.classes.repeat_interleave(copies),
        certain_copies(copies) & certain.repeat_interleave(copies),
    )


def _with_ratios(distinct: DistinctRows, rows: Tensor, count: int, columns: TableColumns) -> FoundRecords:
    """The rows found and the nearest possible rows to other ratios, as many as the client has; none is certain."""
    bias = rows[:, -1].abs()
    live = bias > _LIVE * bias.max()
    values, distances = nearest_rows(columns, rows[live, :-1] / rows[live, -1:])
    copies = dict(zip(map(tuple, distinct.values.tolist()), distinct.copies.tolist(), strict=False))
    classes = dict(zip(map(tuple, distinct.values.tolist()), distinct.classes.tolist(), strict=False))
    for place in distances.argsort().tolist():
        row = tuple(values[place].tolist())
        if sum(copies.values()) < count and row not in copies:
            copies[row], classes[row] = 1, -1
    shown = DistinctRows.of({(row, classes[row]): number for row, number in copies.items()}, columns)
    return _records(shown, columns, torch.zeros(len(shown.values), dtype=torch.bool))
