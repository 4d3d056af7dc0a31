"""Rows of a table with any number of possible ones: ratios on the table's grid, subtracted, which isolates others."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.record_candidates import RecordErrors
from fedleak.core.table_columns import TableColumns

NEAR = 0.25
"""Distance from a possible row, see `nearest_rows`, up to which a ratio may be it."""
_STRICTNESS = ((1e-4, 1e-4), (1e-3, 1e-3), (1e-2, 1e-2), (0.1, 1e-2), (NEAR, 1e-2))
"""Distances from a possible row, and relative misfits of the change of the bias, up to which a ratio is taken for it.
The clearest ratios come first: one that is a combination of rows, and near the grid by chance, spoils what follows."""
_SAME_RATE = 1e-3
"""Relative difference of two rates up to which they are one rate."""
_LEAST = 1e-5
"""Share of the largest change of a bias below which a change is rounding."""
_MOST_RATES = 3
"""Number of rates that are tried."""
_MOST_COPIES = 4
"""Largest number of equal rows of a class that one ratio may be."""


@dataclass(frozen=True)
class RowChanges:
    """What possible rows change at a layer in one step.

    Attributes:
        columns: the grid of the numbers, and the categories.
        errors: changes of the bias at the global model.
        embed: from rows ``(M, D)`` to what the layer gets of them ``(M, E)``, where it is another; else E is D.
    """

    columns: TableColumns
    errors: RecordErrors
    embed: Callable[[Tensor], Tensor] | None = None

    def records(self, values: Tensor) -> Tensor:
        """``(M, D)`` rows of values ``(M, C)`` as the network gets them."""
        return self.columns.encode(values).float().double()

    def points(self, values: Tensor) -> Tensor:
        """``(M, E + 1)`` what the layer gets of rows of values ``(M, C)``, with a 1 appended."""
        records = self.records(values)
        inputs = records
        if self.embed is not None:
            inputs = self.embed(records).double()
        return torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1)

    def biases(self, values: Tensor) -> Tensor:
        """``(M, K, N)`` changes of the bias by rows of values ``(M, C)``, as records of each class."""
        return self.errors(self.records(values))


@dataclass(frozen=True)
class DistinctRows:
    """M rows of a client that differ in values or class, and how often each occurs.

    Attributes:
        values: ``(M, C)`` int64 values, see `TableColumns.decode`.
        classes: ``(M,)`` int64.
        copies: ``(M,)`` int64 numbers of copies.
    """

    values: Tensor
    classes: Tensor
    copies: Tensor

    @classmethod
    def of(cls, copies: Mapping[tuple[tuple[int, ...], int], int], columns: TableColumns) -> Self:
        """Those of the numbers of copies by values and class."""
        values, classes = list[tuple[int, ...]](), list[int]()
        for row, label in copies:
            values.append(row)
            classes.append(label)
        return cls(
            torch.tensor(values, dtype=torch.int64).reshape(len(values), len(columns.sizes)),
            torch.tensor(classes, dtype=torch.int64),
            torch.tensor(list(copies.values()), dtype=torch.int64),
        )

    def changed_by(self, changes: RowChanges) -> tuple[Tensor, Tensor]:
        """What the layer gets of each with a 1 appended, ``(M, E + 1)``, and its change of the biases ``(M, N)``."""
        each = torch.arange(len(self.values))
        return changes.points(self.values), changes.biases(self.values)[each, self.classes]


def nearest_rows(columns: TableColumns, ratios: Tensor) -> tuple[Tensor, Tensor]:
    """Values ``(M, C)`` of the possible rows nearest to ratios ``(M, D)``, and their distances ``(M,)``.

    The distance is the largest of all inputs: in steps of the grid for a number, from 0 or 1 for a one-hot input.
    """
    values = columns.decode(ratios)
    distances = ((ratios - columns.encode(values)).abs() / columns.step).amax(1)
    return values, distances.nan_to_num(nan=torch.inf)


def peel_rows(rows: Tensor, changes: RowChanges, *, rate: float | None) -> DistinctRows:
    """Rows that alone excite a neuron, subtracted until no neuron shows another one.

    Of the update, ``-rows[j] = rate * sum_i c_ij [x_i, 1]`` over the rows x_i that excite neuron j. If there is one,
    the ratio of weights to bias is the row: its numbers are on their grid, and each category has one 1. The row is then
    known without rounding, its changes c_i follow from the global model for each class, and the class is that which
    explains the bias. What the row changes is subtracted at all neurons, which leaves others with one row.

    The rate may be unknown, as of clipped updates: each ratio gives one for each class, and the right one is that on
    which most rows agree.

    Args:
        rows: ``(N, D + 1)`` float64 change of weight and bias.
        changes: what each possible row changes.
        rate: the rate that follows from the reported number of examples; None if unknown.

    References:
        [LTCodes26], Algorithm 1, for the subtraction. This project, for the grid, which keeps rounding out of the
        subtraction, and for the rate.
    """
    best = DistinctRows.of({}, changes.columns)
    least_misfit = float("inf")
    for candidate_rate in _rates(rows, changes, rate):
        peeled, remaining = _peeled(rows, changes, candidate_rate)
        misfit = float(remaining.norm())
        if misfit < least_misfit:
            best = peeled
            least_misfit = misfit
    return best


def _live_neurons(rows: Tensor, largest: float) -> Tensor:
    """Numbers of the neurons whose bias changes by more than rounding."""
    return (rows[:, -1].abs() > _LEAST * largest).nonzero().flatten()


def _rates(rows: Tensor, changes: RowChanges, declared: float | None) -> list[float]:
    """The declared rate, and those by which most different rows explain the neurons that show them."""
    rates = [] if declared is None else [declared]
    neurons = _live_neurons(rows, float(rows[:, -1].abs().max()))
    values, distances = nearest_rows(changes.columns, rows[neurons, :-1] / rows[neurons, -1:])
    is_near = distances < NEAR
    neurons = neurons[is_near]
    values = values[is_near]
    if not len(neurons):
        return rates
    # Each neuron gives one rate for each class of the row that it shows.
    of_class = -rows[neurons, -1:] / changes.biases(values)[torch.arange(len(neurons)), :, neurons]
    shown_row = torch.unique(values, dim=0, return_inverse=True)[1].repeat_interleave(of_class.shape[1])
    is_usable = torch.isfinite(of_class.flatten()) & (of_class.flatten() > 0)
    candidates = of_class.flatten()[is_usable]
    shown_row = shown_row[is_usable]
    # A rate has as many votes as different rows agree on it: those of wrong classes agree with no others.
    agrees = (candidates[:, None] / candidates - 1).abs() < _SAME_RATE
    votes = torch.tensor([len(torch.unique(shown_row[same])) for same in agrees])
    for number in votes.argsort(descending=True, stable=True).tolist():
        rate = float(candidates[agrees[number]].median())
        is_new = all(abs(rate / earlier - 1) > _SAME_RATE for earlier in rates)
        if len(rates) < _MOST_RATES and is_new:
            rates.append(rate)
    return rates


def _peeled(rows: Tensor, changes: RowChanges, rate: float) -> tuple[DistinctRows, Tensor]:
    """Rows found at one rate, and the update without them."""
    remaining = rows.clone()
    largest = float(rows[:, -1].abs().max())
    copies = dict[tuple[tuple[int, ...], int], int]()
    attempts = list(itertools.product(_STRICTNESS, range(1, 1 + _MOST_COPIES)))
    attempt = 0
    while attempt < len(attempts):
        (near, equal), number = attempts[attempt]
        neurons = _live_neurons(remaining, largest)
        values, distances = nearest_rows(changes.columns, remaining[neurons, :-1] / remaining[neurons, -1:])
        is_near = distances < near
        neurons = neurons[is_near]
        values = values[is_near]
        distances = distances[is_near]
        points = changes.points(values)
        biases = changes.biases(values)
        # So many copies of the row alone must make the whole change of the bias at its neuron, as records of one class.
        expected = -number * rate * biases[torch.arange(len(neurons)), :, neurons]
        misfit, labels = (expected / remaining[neurons, -1:] - 1).abs().min(1)
        subtracted = False
        for candidate in distances.argsort().tolist():
            label = labels[candidate]
            row = tuple(values[candidate].tolist()), int(label)
            if float(misfit[candidate]) < equal and row not in copies:
                copies[row] = number
                remaining += number * rate * biases[candidate, label][:, None] * points[candidate]
                subtracted = True
        # What is subtracted isolates other rows, of which the clearest come first again.
        attempt = 0 if subtracted else attempt + 1
    return DistinctRows.of(copies, changes.columns), remaining
