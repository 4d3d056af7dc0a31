"""Whole numbers of rows and of positive rows of every node of a tree, from the numbers that the tree is sent with.

All rows of a node with one probability p have the Hessian ``h = p (1 - p)`` and the gradient ``p - y``. With n rows of
which m are positive, XGBoost stores ``H = n h`` and the weight ``w = (m - n p) / (n h + lambda)``.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.trees.tree_boxes import TreeBoxes

ROUNDING = 2.0**-23
"""Relative error of a stored float32, doubled: it is rounded once, and so is each addend of its sum."""
PROBABILITY_ROUNDINGS = 4.0
"""Roundings to float32 on the way from the base score to a Hessian, and that of the base score itself."""
MOST_ERROR = 0.05
"""Largest error of a number that still counts as shown to be whole: by chance, one in ten is as near."""
LEAST_SPLITS = 2
"""Splits whose counts add up in a certified tree. With one alone, an undeclared L1 penalty, lambda or class weight can
move the positives of both children by whole numbers in opposite directions."""
MOST_CHANCE = 1e-4
"""Largest probability that all numbers of a tree are that near to whole ones by chance, in certified trees."""
UNKNOWN = -1


@dataclass(frozen=True)
class Training:
    """What the arithmetic takes for given.

    Attributes:
        eta: learning rate, by which stored weights of leaves are multiplied.
        reg_lambda: what is added to the Hessian in the denominator of a weight.
    """

    eta: float
    reg_lambda: float


@dataclass(frozen=True)
class NodeCounts:
    """Numbers of the N nodes of a tree; -1 where they are unknown.

    Attributes:
        rows: ``(N,)`` int64.
        positives: ``(N,)`` int64.
        certified: ``(N,)`` bool.
    """

    rows: Tensor
    positives: Tensor
    certified: Tensor

    @classmethod
    def unknown(cls, nodes: int) -> "NodeCounts":
        """Counts of which nothing is known."""
        nothing = torch.full((nodes,), UNKNOWN)
        return cls(nothing, nothing.clone(), torch.zeros(nodes, dtype=torch.bool))


@dataclass(frozen=True)
class _Probability:
    """Probability of a positive row before the tree, ``(N,)`` by node or of all nodes, and relative error of it."""

    p: Tensor
    error: Tensor

    @classmethod
    def of_margin(cls, margin: Tensor) -> "_Probability":
        """Of log odds, which are sums in float32."""
        return cls(margin.sigmoid(), probability_errors(margin))

    @property
    def hessian(self) -> Tensor:
        return self.p * (1 - self.p)


def probability_errors(margin: Tensor) -> Tensor:
    """Relative error of p, of 1 - p and of their product, for log odds that are sums in float32.

    >>> [float(f"{error:.1e}") for error in probability_errors(torch.tensor([0.0, -7.0, 7.0])).tolist()]
    [6e-07, 3.8e-06, 0.00013]
    """
    # An error of the log odds of d changes p, 1 - p and their product by a share of at most d.
    of_margin = PROBABILITY_ROUNDINGS * ROUNDING * (1 + margin.abs())
    # p is rounded before it is taken from 1: near 1, that is a large share p / (1 - p) of the difference.
    return of_margin + ROUNDING * margin.exp()


def whole(values: Tensor, errors: Tensor) -> Tensor:
    """Whether each number is whole within its error, and the error is small enough to show it.

    >>> whole(torch.tensor([3.001, 3.2, 3.0]), torch.tensor([0.01, 0.01, 0.4])).tolist()
    [True, False, False]
    """
    return ((values - values.round()).abs() <= errors) & (errors <= MOST_ERROR)


def weights(boxes: TreeBoxes, training: Training) -> Tensor:
    """``(N,)`` weights before the learning rate: of a leaf, from its value, as methods store its base weight unlike."""
    return torch.where(boxes.is_leaf, boxes.threshold / training.eta, boxes.weight)


def counts_from_hessians(
    boxes: TreeBoxes, margin: Tensor, training: Training, *, size: int | None, own_share: bool
) -> NodeCounts:
    """Counts of the nodes whose rows have one margin, from the sums of Hessians.

    Args:
        boxes: the tree.
        margin: ``(N,)`` log odds of all rows of each node before the tree; NaN where they differ.
        training: learning rate and lambda.
        size: number of rows of the client; None if it is unknown.
        own_share: whether the base score must be the client's share of positives, which an unknown size needs.
    """
    is_known = margin.isfinite()
    probability = _Probability.of_margin(margin.nan_to_num())
    weight = weights(boxes, training)
    rows = boxes.hessian / probability.hessian
    rows_error = rows.abs() * (probability.error + ROUNDING)
    denominator = rows.round() * probability.hessian + training.reg_lambda
    positives = rows.round() * probability.p + weight * denominator
    scale = rows.abs() * probability.p + weight.abs() * denominator.abs()
    positives_error = scale * (probability.error + 2 * ROUNDING)

    is_whole = whole(rows, rows_error) & whole(positives, positives_error)
    counts_rows = rows.nan_to_num(posinf=0, neginf=0).round().long()
    counts_positives = positives.nan_to_num(posinf=0, neginf=0).round().long()
    is_possible = (counts_rows >= 1) & (counts_positives >= 0) & (counts_positives <= counts_rows)
    is_sure = bool((is_whole & is_possible)[is_known].all()) and bool(is_known.any())
    is_sure = is_sure and _adds_up(boxes, counts_rows, is_known) and _adds_up(boxes, counts_positives, is_known)
    is_sure = is_sure and _chance(rows_error[is_known], positives_error[is_known]) <= MOST_CHANCE
    is_sure = is_sure and _shows_settings(boxes, is_known, probability, counts_rows, counts_positives)
    if not bool(is_known[0]):
        # No number of examples is compared with the nodes: whole row weights must be excluded by them alone.
        of_known = [counts.masked_fill(~is_known, 0) for counts in (counts_rows, counts_positives)]
        is_sure = is_sure and not _has_common_factor(boxes, *of_known)
    elif size is not None:
        is_sure = is_sure and int(counts_rows[0]) == size
    elif own_share:
        is_sure = is_sure and bool(_is_own_share(counts_rows[0], counts_positives[0], probability, node=0))
        is_sure = is_sure and not _has_common_factor(boxes, counts_rows, counts_positives)
    return NodeCounts(
        rows=counts_rows.masked_fill(~is_known | ~is_possible, UNKNOWN),
        positives=counts_positives.masked_fill(~is_known | ~is_possible, UNKNOWN),
        certified=is_known & is_sure,
    )


def counts_from_weights(
    boxes: TreeBoxes, margin: float, training: Training, *, sizes: Tensor, own_share: bool
) -> NodeCounts:
    """Counts of all nodes of a first tree from the weights of its nodes alone.

    The gradients of a node are those of its children together, so that ``w (n h + lambda) = w_l (n_l h + lambda) + w_r
    (n_r h + lambda)``. With n of the parent, n of the left child follows; the root has the rows of the client.

    Args:
        boxes: the tree.
        margin: log odds of all rows before the tree.
        training: learning rate and lambda.
        sizes: ``(C,)`` int64 numbers of rows that the client may have. Of several, the one is taken for which all
            numbers are whole; if it is not the only one, nothing is certified.
        own_share: whether the base score must be the client's share of positives.
    """
    solver = _WeightSolver(boxes, margin, training)
    solution = solver.solve(sizes, own_share=own_share)
    if solution is None:
        # No size fits: what is nearest for the first of them, and nothing is certain.
        if len(sizes) > 1:
            return NodeCounts.unknown(len(boxes.left))
        return solver.nearest(int(sizes[0]))
    return solution


class _WeightSolver:
    """Counts of the nodes for several numbers of rows at once."""

    def __init__(self, boxes: TreeBoxes, margin: float, training: Training) -> None:
        self.boxes = boxes
        self.probability = _Probability.of_margin(torch.tensor(margin, dtype=torch.float64))
        self.p = float(self.probability.p)
        self.h = float(self.probability.hessian)
        self.error = float(self.probability.error)
        self.reg_lambda = training.reg_lambda
        self.weight = weights(boxes, training)

    def positives(self, node: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        """``(C,)`` positive rows of a node with so many rows, and their errors."""
        weight = float(self.weight[node])
        denominator = rows * self.h + self.reg_lambda
        values = rows * self.p + weight * denominator
        scale = rows * self.p + abs(weight) * denominator
        return values, scale * (self.error + 2 * ROUNDING)

    def left_rows(self, node: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        """``(C,)`` rows of the left child of a node with so many rows, and their errors."""
        left, right = int(self.boxes.left[node]), int(self.boxes.right[node])
        weight, left_weight, right_weight = (float(self.weight[number]) for number in (node, left, right))
        gap = left_weight - right_weight
        denominator = rows * self.h + self.reg_lambda
        if gap == 0:
            return torch.full_like(rows, torch.nan), torch.full_like(rows, torch.inf)
        values = ((weight - right_weight) * denominator - left_weight * self.reg_lambda) / (self.h * gap)
        stored = (abs(weight) + abs(right_weight)) * denominator + abs(left_weight) * self.reg_lambda
        # The three weights are rounded; a child's n from h changes with the terms that h divides.
        rounded = stored * ROUNDING + values.abs() * self.h * (abs(left_weight) + abs(right_weight)) * ROUNDING
        # Only the terms with lambda are divided by an h that is not in them, too.
        by_hessian = self.error * self.reg_lambda * abs(weight - right_weight - left_weight)
        return values, (rounded + by_hessian) / (self.h * abs(gap))

    def solve(self, sizes: Tensor, *, own_share: bool) -> NodeCounts | None:
        """The counts for the only number of rows that fits; None if none does, uncertified if several do."""
        nodes = len(self.boxes.left)
        rows = torch.zeros(len(sizes), nodes, dtype=torch.float64)
        positives = torch.zeros_like(rows)
        known = torch.zeros(nodes, dtype=torch.bool)
        known[0] = True
        rows[:, 0] = sizes.double()
        chance = 1.0
        for node in range(nodes):
            if not bool(known[node]) or len(rows) == 0:
                continue
            values, errors = self.positives(node, rows[:, node])
            fits = whole(values, errors) & (values.round() >= 0) & (values.round() <= rows[:, node])
            fits &= rows[:, node] >= 1
            if node == 0 and own_share:
                fits &= _is_own_share(rows[:, 0], values.round(), self.probability)
            positives[:, node] = values.round()
            chance *= _share_by_chance(errors)
            is_split = not bool(self.boxes.is_leaf[node])
            if is_split:
                left, right = int(self.boxes.left[node]), int(self.boxes.right[node])
                left_values, left_errors = self.left_rows(node, rows[:, node])
                rows[:, left] = left_values.round()
                rows[:, right] = rows[:, node] - rows[:, left]
                # Where the weights of both children are too near, what lies below is left open.
                if bool((left_errors[fits] <= MOST_ERROR).all()):
                    known[[left, right]] = True
                    fits &= whole(left_values, left_errors) & (rows[:, left] >= 1) & (rows[:, right] >= 1)
                    chance *= _share_by_chance(left_errors)
            rows, positives = rows[fits], positives[fits]
        if len(rows) == 0:
            return None
        # By chance, some of the sizes that were tried would fit.
        is_certain = len(rows) == 1 and chance * len(sizes) <= MOST_CHANCE
        # A weight of the root alone, without a sum of Hessians, fits many numbers of rows.
        is_certain = is_certain and _checked_splits(self.boxes, known) >= LEAST_SPLITS
        is_certain = is_certain and not _has_cut_weight(self.boxes, self.probability.p)
        if own_share:
            is_certain = is_certain and not _has_common_factor(self.boxes, rows[0].nan_to_num(), positives[0])
        return NodeCounts(
            rows=rows[0].nan_to_num().long().masked_fill(~known, UNKNOWN),
            positives=positives[0].long().masked_fill(~known, UNKNOWN),
            certified=known & is_certain,
        )

    def nearest(self, size: int) -> NodeCounts:
        """The nearest whole numbers for a number of rows for which not all are whole."""
        nodes = len(self.boxes.left)
        rows = torch.zeros(nodes, dtype=torch.float64)
        rows[0] = size
        for node in (~self.boxes.is_leaf).nonzero().flatten().tolist():
            left_values, _ = self.left_rows(node, rows[node : node + 1])
            left = left_values.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).round().clamp(min=0)
            left = left.minimum(rows[node])
            rows[self.boxes.left[node]] = left[0]
            rows[self.boxes.right[node]] = rows[node] - left[0]
        counts = NodeCounts.unknown(nodes)
        positives = [self.positives(node, rows[node : node + 1])[0] for node in range(nodes)]
        inferred = torch.cat(positives).round().clamp(min=0).minimum(rows)
        return NodeCounts(rows.long(), inferred.long(), counts.certified)


def _share_by_chance(errors: Tensor) -> float:
    """Probability that a number is whole within its error, for the largest of the errors that are small enough."""
    small = errors[errors <= MOST_ERROR]
    if len(small) == 0:
        return 1.0
    return min(1.0, 2 * float(small.max()))


def _chance(*errors: Tensor) -> float:
    """Probability that numbers with these errors are all whole within them by chance."""
    logarithm = sum(float((2 * error).clamp(min=1e-300, max=1.0).log().sum()) for error in errors)
    return math.exp(max(logarithm, -700.0))


def _adds_up(boxes: TreeBoxes, counts: Tensor, is_known: Tensor) -> bool:
    """Whether each split has the counts of its children together, where all three are known."""
    splits = (~boxes.is_leaf).nonzero().flatten()
    left, right = boxes.left[splits], boxes.right[splits]
    is_judged = is_known[splits] & is_known[left] & is_known[right]
    return bool((counts[splits] == counts[left] + counts[right])[is_judged].all())


def _checked_splits(boxes: TreeBoxes, is_known: Tensor) -> int:
    """Number of splits of which the counts of the node and of both children are known."""
    splits = (~boxes.is_leaf).nonzero().flatten()
    are_known = is_known[splits] & is_known[boxes.left[splits]] & is_known[boxes.right[splits]]
    return int(are_known.sum())


def _has_cut_weight(boxes: TreeBoxes, p: Tensor) -> bool:
    """Whether a weight is exactly 0 although gradients hardly add up to that in float32, except for p = 1/2.

    An L1 penalty makes such weights, and XGBoost that of a root which is lighter than the least weight of a child.
    """
    weight = torch.where(boxes.is_leaf, boxes.threshold, boxes.weight)
    return bool(((weight == 0) & (p != 0.5)).any())


def _shows_settings(
    boxes: TreeBoxes, is_known: Tensor, probability: _Probability, rows: Tensor, positives: Tensor
) -> bool:
    """Whether whole numbers show that the declared settings are those of the client.

    Without a split they do not, but the positives of a root are the share p of its rows under any settings if XGBoost
    takes p from its labels. A weight of exactly 0 is also what a root lighter than the least weight of a child gets.
    """
    if _has_cut_weight(boxes, probability.p):
        return False
    if len(boxes.left) > 1:
        return _checked_splits(boxes, is_known) >= LEAST_SPLITS
    return float(boxes.threshold[0]) != 0 and bool(_is_own_share(rows[0], positives[0], probability, node=0))


def _is_own_share(rows: Tensor, positives: Tensor, probability: _Probability, node: int | None = None) -> Tensor:
    """Whether the base score is what XGBoost makes of the client's share of positives, to rounding.

    That is the share itself or, until version 3.0, the probability after a Newton step from one half.
    """
    p, error = probability.p, probability.error
    if node is not None:
        p, error = p[node], error[node]
    share = positives / rows
    # From one half, a step has the log odds 4 (share - 1 / 2).
    of_step = (4 * share - 2).sigmoid()
    return ((share - p).abs() <= p * error) | ((of_step - p).abs() <= p * error)


def _has_common_factor(boxes: TreeBoxes, rows: Tensor, positives: Tensor) -> bool:
    """Whether all positives, or all other rows, of the leaves are multiples of a number.

    A class with a whole weight looks like so many copies of its rows; a number of rows that is known excludes it.
    """
    of_leaves = positives[boxes.is_leaf].long()
    others = rows[boxes.is_leaf].long() - of_leaves
    return math.gcd(*of_leaves.tolist()) > 1 or math.gcd(*others.tolist()) > 1
