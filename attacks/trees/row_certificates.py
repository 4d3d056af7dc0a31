"""How many rows of a class are certain to be in a box: the least number over all solutions of what trees tell.

A cell is a box that no tree before a client's second one divides. All of its rows have one margin, so that the sums of
both trees are linear in the whole numbers of rows of each class in the cells. The least number in a box over all
solutions that need not be whole, of a linear program, is a lower bound of that over whole ones, and rounded up it is
certain. A whole number of rows is asked for a leaf of both trees at a time.
"""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedleak.attacks.trees.node_counts import ROUNDING, probability_errors
from fedleak.attacks.trees.tree_boxes import TreeBoxes
from fedleak.attacks.trees.tree_messages import SentTree
from fedleak.client.trees import TreesAlgorithm

MOST_CELLS = 1000
"""Cells beyond which the second tree is not used."""
MOST_PROGRAMS = 100
"""Linear programs for a client, each of which asks for a box and a class."""
SOLVER_TOLERANCE = 1e-5
"""Error of a sum that the solver itself allows, with a margin."""
BOUND_TOLERANCE = 1e-3
"""The same for a number of rows."""
_INFEASIBLE = 2
"""Status of a linear program that has no solution."""
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Certificate:
    """So many rows of a class are in a box, in each column of which they have a value.

    Attributes:
        low: ``(F,)`` float64 box, ``low <= value < high``.
        high: ``(F,)`` float64.
        leaf: leaf of the first tree.
        second_leaf: leaf of the second tree; -1 where it is not used.
        label: class.
        count: number of rows.
    """

    low: Tensor
    high: Tensor
    leaf: int
    second_leaf: int
    label: int
    count: int


@dataclass(frozen=True)
class _Cells:
    """Cells ``(C, ...)`` with their leaves in both trees and margins before the second one."""

    low: Tensor
    high: Tensor
    missing: Tensor
    leaf: Tensor
    second_leaf: Tensor
    margin: Tensor

    def divided(self, tree: TreeBoxes) -> "tuple[_Cells, Tensor]":
        """The cells cut by the leaves of a tree, and the leaf of each."""
        leaves = tree.is_leaf.nonzero().flatten()
        low = torch.maximum(self.low[:, None], tree.low[leaves])
        high = torch.minimum(self.high[:, None], tree.high[leaves])
        missing = self.missing[:, None] & tree.missing[leaves]
        # Rows without a value may be where no value is possible.
        cell, place = ((low < high) | missing).all(2).nonzero(as_tuple=True)
        parts = _Cells(
            low=low[cell, place],
            high=high[cell, place],
            missing=missing[cell, place],
            leaf=self.leaf[cell],
            second_leaf=self.second_leaf[cell],
            margin=self.margin[cell],
        )
        return parts, leaves[place]


def first_tree_certificates(boxes: TreeBoxes, counts: Tensor) -> list[Certificate]:
    """What the first tree says, of which the rows of each class ``(N, 2)`` in the nodes are certain."""
    certificates = []
    for leaf in boxes.is_leaf.nonzero().flatten().tolist():
        for label, count in enumerate(counts[leaf].tolist()):
            if count > 0:
                certificates.append(Certificate(boxes.low[leaf], boxes.high[leaf], leaf, -1, label, count))
    return certificates


def second_tree_certificates(
    first: SentTree, second: SentTree, counts: Tensor, algorithm: TreesAlgorithm, is_masked: bool
) -> list[Certificate] | None:
    """What both trees say together; None if no numbers of rows fit both, so that something declared is wrong.

    Empty if there are too many cells, or numbers that are no tree among those before the second one.

    Args:
        first: the first tree.
        second: the second one, with those on which it was grown.
        counts: ``(N, 2)`` int64 certain numbers of rows of each class in the nodes of the first tree.
        algorithm: what the clients run.
        is_masked: whether sums of Hessians are not read.
    """
    cells = _cells(first, second)
    if cells is None:
        return []
    program = _Program(cells, first.boxes, second.boxes, counts, algorithm, is_masked)
    if not program.is_feasible():
        return None
    certificates = []
    pairs = torch.unique(torch.stack([cells.leaf, cells.second_leaf], dim=1), dim=0).tolist()
    for leaf, second_leaf in pairs[: MOST_PROGRAMS // 2]:
        is_asked = (cells.leaf == leaf) & (cells.second_leaf == second_leaf)
        for label in (0, 1):
            count = program.least(is_asked, label)
            if count > 0:
                low = torch.maximum(first.boxes.low[leaf], second.boxes.low[second_leaf])
                high = torch.minimum(first.boxes.high[leaf], second.boxes.high[second_leaf])
                certificates.append(Certificate(low, high, leaf, second_leaf, label, count))
    return certificates


def _cells(first: SentTree, second: SentTree) -> _Cells | None:
    """All cells; None if they are too many, or a tree before is none."""
    leaves = first.boxes.is_leaf.nonzero().flatten()
    log_odds = torch.tensor(second.base_score, dtype=torch.float64).logit()
    cells = _Cells(
        low=first.boxes.low[leaves],
        high=first.boxes.high[leaves],
        missing=first.boxes.missing[leaves],
        leaf=leaves,
        second_leaf=torch.full_like(leaves, -1),
        margin=log_odds.expand(len(leaves)),
    )
    # The first tree counts only if the server has put it into the forest, as often as it is there.
    for nodes in second.before:
        tree = TreeBoxes.of(nodes, features=cells.low.shape[1])
        if tree is None:
            return None
        cells, leaf = cells.divided(tree)
        cells = dataclasses.replace(cells, margin=cells.margin + tree.threshold[leaf])
        if len(cells.leaf) > MOST_CELLS:
            return None
    cells, leaf = cells.divided(second.boxes)
    if len(cells.leaf) > MOST_CELLS:
        return None
    return dataclasses.replace(cells, second_leaf=leaf)


class _Program:
    """Whole numbers of rows of class 0, then of class 1, in each cell, that fit both trees."""

    def __init__(
        self,
        cells: _Cells,
        first: TreeBoxes,
        second: TreeBoxes,
        counts: Tensor,
        algorithm: TreesAlgorithm,
        is_masked: bool,
    ) -> None:
        # Cells with equal leaves and margins are alike in all sums.
        keys = torch.stack([cells.leaf.double(), cells.second_leaf.double(), cells.margin], dim=1)
        self.kinds, self.kind_of_cell = torch.unique(keys, dim=0, return_inverse=True)
        self.count = len(self.kinds)
        rows, limits = list[Tensor](), list[Tensor]()
        equations = (*self._first(first, counts), *self._second(second, counts, algorithm, is_masked))
        for factors, target, slack in equations:
            # |factors x - target| <= slack
            rows += [factors, -factors]
            limits += [target + slack, slack - target]
        self.rows = torch.stack(rows).numpy()
        self.limits = torch.stack(limits).numpy()

    def _first(self, first: TreeBoxes, counts: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The numbers of each class in the leaves of the first tree are certain."""
        for leaf in first.is_leaf.nonzero().flatten().tolist():
            in_leaf = (self.kinds[:, 0] == leaf).double()
            nothing = torch.zeros_like(in_leaf)
            exactly = torch.tensor(SOLVER_TOLERANCE, dtype=torch.float64)
            yield torch.cat([in_leaf, nothing]), counts[leaf, 0].double(), exactly
            yield torch.cat([nothing, in_leaf]), counts[leaf, 1].double(), exactly

    def _second(
        self, second: TreeBoxes, counts: Tensor, algorithm: TreesAlgorithm, is_masked: bool
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The sums of each leaf of the second tree are those of the tree, to rounding.

        Sums of gradients G and of Hessians H are related by the weight, ``G + w (H + lambda) = 0``, also where H is
        masked.
        """
        margin = self.kinds[:, 2]
        probability = margin.sigmoid()
        hessian = probability * (1 - probability)
        gradients = torch.cat([probability, probability - 1])
        hessians = torch.cat([hessian, hessian])
        error = probability_errors(margin).max()
        size = counts[0].sum()
        for leaf in second.is_leaf.nonzero().flatten().tolist():
            in_leaf = (self.kinds[:, 1] == leaf).double().repeat(2)
            weight = second.threshold[leaf] / algorithm.eta
            # The largest that the sum of what is added up can be, times the error of each.
            scale = size * (1 + weight.abs()) + weight.abs() * algorithm.reg_lambda
            factors = in_leaf * (gradients + weight * hessians)
            yield factors, -weight * algorithm.reg_lambda, scale * error + SOLVER_TOLERANCE
            if not is_masked:
                total = second.hessian[leaf]
                yield in_leaf * hessians, total, total * (error + ROUNDING) + SOLVER_TOLERANCE

    def is_feasible(self) -> bool:
        """Whether some numbers fit, whole or not."""
        return self._minimum(np.zeros(2 * self.count)) is not None

    def least(self, cells: Tensor, label: int) -> int:
        """Lower bound of the number of rows of a class in some cells over all solutions."""
        kinds = torch.unique(self.kind_of_cell[cells])
        objective = np.zeros(2 * self.count)
        objective[kinds.numpy() + label * self.count] = 1
        bound = self._minimum(objective)
        if bound is None:
            return 0
        # The least whole number that is not below the bound.
        return max(math.ceil(bound - BOUND_TOLERANCE), 0)

    def _minimum(self, objective: FloatArray) -> float | None:
        """The minimum over all numbers of at least 0; None if none fit."""
        from scipy import optimize

        solution = optimize.linprog(
            objective,
            A_ub=self.rows,
            b_ub=self.limits,
            bounds=(0, None),
            method="highs",
        )
        if solution.status == _INFEASIBLE:
            return None
        # Where the solver stops for another reason, nothing is certain.
        if solution.status != 0 or solution.fun is None:
            return 0.0
        return float(solution.fun)
