"""Inputs of a linear layer inside a network, one per example, separated from the sums in one step's update."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

Search = Callable[["Remaining"], Iterator[Tensor]]
"""From what remains of an update to inputs ``(P, D)`` that may be those of examples."""
Errors = Callable[[Tensor], Tensor]
"""From inputs ``(M, D)`` of the layer to the gradients ``(M, K, N)`` of an example's loss by its outputs, by class."""
_GAP = 0.1
"""Largest ratio of the singular value after the last of the examples to that one."""
_MOST_MISFIT = 0.01
"""Largest relative misfit of a certificate, also where rounding of the numbers would allow more."""
_SUBSETS = 20_000
"""Largest number of sets of silent neurons that are tried."""
_COLUMNS = 12
"""Columns with the most silent neurons that are combined."""
_FEW = 8
"""Examples up to which sets of silent neurons are tried after another search: they take long for more."""
_DEPENDENT = 1e-3
"""Ratio of the smallest to the largest singular value of chosen columns below which they are dependent."""
_FIXED = 0.01
"""Smallest singular value of a set of neurons above which they fix a column."""
_SAME = 1e-6
"""Distance below which two directions are one."""


@dataclass(frozen=True)
class Separated:
    """Examples whose input of the layer is known.

    Attributes:
        inputs: ``(M, D)`` float64 inputs of the layer.
        classes: ``(M,)`` their classes.
        errors: ``(M, N)`` gradients of each example's own loss by the outputs of the layer.
        complete: whether these are all examples in the update.
        distances: ``(M,)`` what the error of the rows adds to each input, over its length: the rows are combined into
            it, and their error with them, whose size shows in the singular values beyond those of the examples.
    """

    inputs: Tensor
    classes: Tensor
    errors: Tensor
    complete: bool
    distances: Tensor


def separate(
    rows: Tensor,
    examples: int,
    errors: Errors,
    *,
    precision: float,
    generator: torch.Generator,
    search: Search | None = None,
) -> Separated:
    """Separates the mean gradient ``C^T [X, 1] / M`` of a linear layer into its examples.

    Column i of C ``(M, N)`` has the errors of example i, zero at each neuron that ReLU silences for it. So

    1. a neuron that one example alone excites has the example's input as ratio of weight and bias (Phong et al.);
    2. the column of an example is the only vector of the columns' span that is zero at the neurons it does not excite:
       of M examples, M - 1 such neurons give it, and all M columns give all inputs (Dimitrov et al.).

    An input is certain if the errors of one of the classes, which follow from it, lie in the span of the columns and
    have the only scale at which subtracting the example lowers the rank of the rows by one. It is then subtracted,
    which isolates others.

    Args:
        rows: ``(N, D + 1)`` float64 mean gradient of weight and bias.
        examples: number M of examples.
        errors: what an input makes of the errors.
        precision: relative precision of the rows.
        generator: source of the sets of neurons, if there are too many for all.
        search: looks for inputs where ratios give none, before the columns; None for no other search.

    References:
        Phong et al., IEEE TIFS 2018, section III. [Dimitrov24], sections 3 and 4. [LTCodes26], Algorithm 1, for the
        subtraction.
    """
    left_vectors, values, right_vectors = torch.linalg.svd(rows, full_matrices=False)
    # The rank must be the number of examples, above rounding or at least with a gap after it.
    rank = int((values > 4 * precision * values[0]).sum())
    if rank > examples and bool(values[examples] < _GAP * values[examples - 1]):
        rank = examples
    if rank != examples or not values[0]:
        return _none(rows)
    # Rounding turns the direction of the smallest singular value most, and so does what is beyond the rank.
    beyond = float(values[rank] / values[rank - 1]) if rank < len(values) else 0.0
    # Without a value beyond the examples', an error of the rows would not show: it may have any size.
    error = float(values[rank]) if rank < len(values) else math.inf
    rounding = 30 * precision * float(values[0] / values[rank - 1])
    slack = min(max(1e-6, rounding, 30 * beyond), _MOST_MISFIT)
    state = Remaining(
        columns=left_vectors[:, :rank],
        core=values[:rank].diag(),
        basis=right_vectors[:rank],
        examples=examples,
        errors_of=errors,
        slack=slack,
        error=max(error, precision * float(values[0])),
    )
    # Ratios are cheap, so columns are tried only where no ratio gives an example.
    while state.left:
        left_before = state.left
        state.take(_ratios(state.rows, slack))
        if state.left == left_before and search is not None:
            for candidates in search(state):
                state.take(candidates)
                if state.left < left_before:
                    break
        if state.left == left_before and (search is None or state.left <= _FEW):
            _by_columns(state, generator)
        if state.left == left_before:
            break
    if not state.inputs:
        return _none(rows)
    return Separated(
        inputs=torch.stack(state.inputs),
        classes=torch.tensor(state.classes),
        errors=torch.stack(state.errors),
        complete=not state.left,
        distances=torch.tensor(state.distances, dtype=torch.float64),
    )


class Remaining:
    """What remains of an update in the search of its examples.

    Rows ``columns @ core @ basis`` without the examples that were subtracted; `left` of these remain.
    """

    def __init__(
        self,
        *,
        columns: Tensor,
        core: Tensor,
        basis: Tensor,
        examples: int,
        errors_of: Errors,
        slack: float,
        error: float,
    ) -> None:
        self.columns = columns
        self.core = core
        self.basis = basis
        self.examples = examples
        self.errors_of = errors_of
        self.slack = slack
        self.error = error
        self.left = len(core)
        self.inputs: list[Tensor] = []
        self.classes: list[int] = []
        self.errors: list[Tensor] = []
        self.distances: list[float] = []

    @property
    def rows(self) -> Tensor:
        """``(N, D + 1)`` the rows that remain."""
        return self.columns @ self.core @ self.basis

    @property
    def records(self) -> Tensor:
        """``(left, D + 1)`` orthonormal basis of the examples that remain, each with a 1 appended."""
        basis: Tensor = torch.linalg.svd(self.core)[2][: self.left] @ self.basis
        return basis

    @property
    def span(self) -> Tensor:
        """``(N, left)`` orthonormal basis of the columns that remain."""
        span: Tensor = self.columns @ torch.linalg.svd(self.core)[0][:, : self.left]
        return span

    def take(self, inputs: Tensor) -> None:
        """Subtracts those of the inputs ``(P, D)`` that are certain."""
        if not len(inputs):
            return
        for point, errors in zip(inputs, self.errors_of(inputs), strict=True):
            self._take(point, errors)

    def _take(self, point: Tensor, errors: Tensor) -> None:
        """Subtracts an example of input ``(D,)`` with ``errors (K, N)`` by class, if it is certain."""
        if not self.left:
            return
        turned, values, back = torch.linalg.svd(self.core)
        turned = turned[:, : self.left]
        values = values[: self.left]
        back = back[: self.left]
        record = torch.cat([point, point.new_ones(1)])
        coordinates = record @ self.basis.T
        # Of the directions that remain only: an example that was subtracted is in none of them.
        within = (coordinates @ back.T) @ back
        if float((record - within @ self.basis).norm()) > self.slack * float(record.norm()):
            return
        # Of each class, the part of its errors in the span of the columns, and what is outside.
        mean_errors = errors / self.examples
        share = mean_errors @ (self.columns @ turned) @ turned.T
        size = errors.norm(dim=1).clamp(min=1e-300) / self.examples
        misfit = (mean_errors - share @ self.columns.T).norm(dim=1) / size
        label = int(misfit.argmin())
        change = share[label]
        # Coefficients with which the rows that remain are combined into the record.
        combination = within @ back.T / values
        # The scale of Wedderburn's subtraction; one for an example of this class in this batch.
        scale = float(combination @ (turned.T @ change))
        if float(misfit[label]) > self.slack or abs(scale - 1) > self.slack:
            return
        self.core = self.core - change[:, None] * within / scale
        self.left -= 1
        self.inputs.append(point)
        self.classes.append(label)
        self.errors.append(errors[label])
        self.distances.append(self.error * float(combination.norm() / record.norm()))


def _ratios(rows: Tensor, slack: float) -> Tensor:
    """``(P, D)`` ratios of weight and bias of the neurons that change."""
    bias = rows[:, -1]
    live = bias.abs() > slack * bias.abs().max()
    return rows[live, :-1] / rows[live, -1:]


def _by_columns(state: Remaining, generator: torch.Generator) -> None:
    """Takes the inputs that follow from columns with most silent neurons."""
    span = state.span
    rank = state.left
    lengths = span.norm(dim=1)
    is_live = lengths > state.slack * lengths.max()
    unit_rows = span[is_live] / lengths[is_live, None]
    columns = _sparse_columns(unit_rows, state.slack, generator)
    for chosen in itertools.combinations(range(len(columns)), rank):
        # Columns C up to a scale of each: C^T [X, 1] = rows has the records up to scales, which the 1 takes out.
        mixed = span @ columns[list(chosen)].T
        sizes = torch.linalg.svdvals(mixed)
        if float(sizes[-1]) < _DEPENDENT * float(sizes[0]):
            continue
        scaled = torch.linalg.lstsq(mixed, state.rows).solution
        if bool((scaled[:, -1].abs() <= 1e-12 * scaled.abs().amax(1)).any()):
            continue
        state.take(scaled[:, :-1] / scaled[:, -1:])
        if state.left < rank:
            return


def _sparse_columns(unit_rows: Tensor, slack: float, generator: torch.Generator) -> Tensor:
    """``(C, R)`` coordinates of columns that are zero at more neurons than any column can be made to be.

    Args:
        unit_rows: ``(N, R)`` rows of the columns' span, of length one.
        slack: size below which a number is zero.
        generator: source of the sets of neurons.
    """
    count, rank = unit_rows.shape
    if rank == 1:
        return unit_rows.new_ones(1, 1)
    # R - 1 neurons fix the column that is zero at them.
    if math.comb(count, rank - 1) <= _SUBSETS:
        sets = torch.tensor(list(itertools.combinations(range(count), rank - 1)))
    else:
        sets = torch.rand(_SUBSETS, count, generator=generator).topk(rank - 1, dim=1).indices
    _, values, turn = torch.linalg.svd(unit_rows[sets])
    candidates = turn[values[:, -1] > _FIXED][:, -1]
    zeros = ((candidates @ unit_rows.T).abs() < 10 * slack).sum(1)
    order = zeros.argsort(descending=True, stable=True)
    columns: list[Tensor] = []
    for number in order[zeros[order] >= rank].tolist():
        candidate = candidates[number]
        if all(float((candidate @ column).abs()) < 1 - _SAME for column in columns):
            columns.append(candidate)
        if len(columns) == _COLUMNS:
            break
    return torch.stack(columns) if columns else unit_rows[:0]


def _none(rows: Tensor) -> Separated:
    return Separated(
        inputs=rows[:0, :-1],
        classes=torch.zeros(0, dtype=torch.int64),
        errors=rows.new_zeros(0, len(rows)),
        complete=False,
        distances=rows.new_zeros(0),
    )
