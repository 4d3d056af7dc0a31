"""Inputs of a linear layer inside a network, one per example, separated from the sums in one step's update."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

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
    """

    inputs: Tensor
    classes: Tensor
    errors: Tensor
    complete: bool


def separate(rows: Tensor, examples: int, errors: Errors, *, precision: float, generator: torch.Generator) -> Separated:
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

    References:
        Phong et al., IEEE TIFS 2018, section III. Dimitrov, Baader, Müller and Vechev, "SPEAR: Exact Gradient Inversion
        of Batches in Federated Learning", NeurIPS 2024, arXiv:2403.03945, sections 3 and 4. "Gradient Inversion via LT
        Codes", 2026, Algorithm 1, for the subtraction.
    """
    left, values, right = torch.linalg.svd(rows, full_matrices=False)
    rank = int((values > 4 * precision * values[0]).sum())
    if rank > examples and bool(values[examples] < _GAP * values[examples - 1]):
        rank = examples
    if rank != examples or not values[0]:
        return _none(rows)
    rest = float(values[rank] / values[rank - 1]) if rank < len(values) else 0.0
    slack = min(max(1e-6, 30 * precision * float(values[0] / values[rank - 1]), 30 * rest), _MOST_MISFIT)
    state = _Remaining(left[:, :rank], values[:rank].diag(), right[:rank], examples, errors, slack)
    while state.left:
        before = state.left
        state.take(_ratios(state.rows, slack))
        if state.left == before:
            _by_columns(state, generator)
        if state.left == before:
            break
    if not state.inputs:
        return _none(rows)
    return Separated(torch.stack(state.inputs), torch.tensor(state.classes), torch.stack(state.errors), not state.left)


class _Remaining:
    """Rows ``left @ core @ right`` without the examples that were subtracted."""

    def __init__(self, left: Tensor, core: Tensor, right: Tensor, examples: int, of: Errors, slack: float) -> None:
        self.columns, self.core, self.basis = left, core, right
        self.examples, self.of, self.slack = examples, of, slack
        self.left = len(core)
        self.inputs: list[Tensor] = []
        self.classes: list[int] = []
        self.errors: list[Tensor] = []

    @property
    def rows(self) -> Tensor:
        """``(N, D + 1)`` the rows that remain."""
        return self.columns @ self.core @ self.basis

    @property
    def span(self) -> Tensor:
        """``(N, left)`` orthonormal basis of the columns that remain."""
        span: Tensor = self.columns @ torch.linalg.svd(self.core)[0][:, : self.left]
        return span

    def take(self, inputs: Tensor) -> None:
        """Subtracts those of the inputs ``(P, D)`` that are certain."""
        if not len(inputs):
            return
        errors = self.of(inputs)
        for point, own in zip(inputs, errors, strict=True):
            self._take(point, own)

    def _take(self, point: Tensor, errors: Tensor) -> None:
        if not self.left:
            return
        turned, values, back = torch.linalg.svd(self.core)
        kept = slice(0, self.left)
        record = torch.cat([point, point.new_ones(1)])
        inside = record @ self.basis.T
        # Of the directions that remain only: an example that was subtracted is in none of them.
        within = (inside @ back[kept].T) @ back[kept]
        if float((record - within @ self.basis).norm()) > self.slack * float(record.norm()):
            return
        share = (errors / self.examples) @ (self.columns @ turned[:, kept]) @ turned[:, kept].T
        misfit = (errors / self.examples - share @ self.columns.T).norm(dim=1) / (
            errors.norm(dim=1).clamp(min=1e-300) / self.examples
        )
        label = int(misfit.argmin())
        change = share[label]
        # The scale of Wedderburn's subtraction; one for an example of this class in this batch.
        scale = float((within @ back[kept].T / values[kept]) @ (turned[:, kept].T @ change))
        if float(misfit[label]) > self.slack or abs(scale - 1) > self.slack:
            return
        self.core = self.core - change[:, None] * within / scale
        self.left -= 1
        self.inputs.append(point)
        self.classes.append(label)
        self.errors.append(errors[label])


def _ratios(rows: Tensor, slack: float) -> Tensor:
    """``(P, D)`` ratios of weight and bias of the neurons that change."""
    bias = rows[:, -1]
    live = bias.abs() > slack * bias.abs().max()
    return rows[live, :-1] / rows[live, -1:]


def _by_columns(state: _Remaining, generator: torch.Generator) -> None:
    """Takes the inputs that follow from columns with most silent neurons."""
    span, rank = state.span, state.left
    lengths = span.norm(dim=1)
    live = lengths > state.slack * lengths.max()
    unit = span[live] / lengths[live, None]
    columns = _sparse_columns(unit, state.slack, generator)
    for chosen in itertools.combinations(range(len(columns)), rank):
        mixed = span @ columns[list(chosen)].T
        size = torch.linalg.svdvals(mixed)
        if float(size[-1]) < 1e-3 * float(size[0]):
            continue
        scaled = torch.linalg.lstsq(mixed, state.rows).solution
        if bool((scaled[:, -1].abs() <= 1e-12 * scaled.abs().amax(1)).any()):
            continue
        state.take(scaled[:, :-1] / scaled[:, -1:])
        if state.left < rank:
            return


def _sparse_columns(unit: Tensor, slack: float, generator: torch.Generator) -> Tensor:
    """``(C, R)`` coordinates of columns that are zero at more neurons than any column can be made to be.

    Args:
        unit: ``(N, R)`` rows of the columns' span, of length one.
        slack: size below which a number is zero.
        generator: source of the sets of neurons.
    """
    count, rank = unit.shape
    if rank == 1:
        return unit.new_ones(1, 1)
    if math.comb(count, rank - 1) <= _SUBSETS:
        sets = torch.tensor(list(itertools.combinations(range(count), rank - 1)))
    else:
        sets = torch.rand(_SUBSETS, count, generator=generator).topk(rank - 1, dim=1).indices
    _, values, turn = torch.linalg.svd(unit[sets])
    found = turn[values[:, -1] > 0.01][:, -1]
    zeros = ((found @ unit.T).abs() < 10 * slack).sum(1)
    order = zeros.argsort(descending=True, stable=True)
    kept: list[Tensor] = []
    for place in order[zeros[order] >= rank].tolist():
        if all(float((found[place] @ other).abs()) < 1 - _SAME for other in kept):
            kept.append(found[place])
        if len(kept) == _COLUMNS:
            break
    return torch.stack(kept) if kept else unit[:0]


def _none(rows: Tensor) -> Separated:
    return Separated(rows[:0, :-1], torch.zeros(0, dtype=torch.int64), rows.new_zeros(0, len(rows)), complete=False)
