"""A small exact trainer of boosted trees, for toys: what XGBoost's exact method sends, without XGBoost."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.client.tree_layout import DEFAULT_LEFT, FIELDS, LEFT, PADDING, RIGHT, THRESHOLD, margins
from fedleak.client.trees import TreesAlgorithm


@dataclass
class _Growing:
    """Gradients and Hessians ``(R,)`` of rows ``(R, F)``, and the nodes so far."""

    rows: Tensor
    gradients: Tensor
    hessians: Tensor
    nodes: list[list[float]]


def grow_tree(rows: Tensor, labels: Tensor, forest: Tensor, base_score: float, algorithm: TreesAlgorithm) -> Tensor:
    """``(N, 8)`` float32 tree of ``binary:logistic``, padded to the largest size, grown greedily level by level.

    Args:
        rows: ``(R, F)`` float32.
        labels: ``(R,)`` 0 or 1.
        forest: ``(M, N, 8)`` the trees before.
        base_score: probability before the first tree.
        algorithm: depth, learning rate, lambda and least weight of a child.

    Example:
        >>> import torch
        >>> from fedleak.client.tree_layout import HESSIAN
        >>> from fedleak.client.trees import TreesAlgorithm
        >>> algorithm = TreesAlgorithm(
        ...     objective="binary:logistic", eta=0.5, depth=1, reg_lambda=1.0, min_child_weight=0.0, subsample=1.0,
        ...     trees=1, aggregation="bagging", features=1, seed=0,
        ... )
        >>> rows = torch.tensor([[1.0], [2.0], [4.0], [5.0]])
        >>> tree = grow_tree(rows, torch.tensor([0, 0, 1, 1]), torch.zeros(0, 3, 8), 0.5, algorithm)
        >>> tree[:, HESSIAN].tolist()
        [1.0, 0.5, 0.5]
    """
    margin = torch.tensor(base_score, dtype=torch.float32).logit() + margins(forest, rows)
    probability = margin.sigmoid()
    growing = _Growing(rows, (probability - labels).double(), (probability * (1 - probability)).double(), [])
    level = [(_node(growing, torch.arange(len(rows)), algorithm), torch.arange(len(rows)))]
    for depth in range(algorithm.depth + 1):
        following = []
        for number, members in level:
            split = None
            if depth < algorithm.depth:
                split = _best_split(growing, members, algorithm)
            if split is None:
                _make_leaf(growing.nodes[number], algorithm.eta)
                continue
            feature, threshold, gain = split
            goes_left = rows[members, feature] < threshold
            children = [(_node(growing, side, algorithm), side) for side in (members[goes_left], members[~goes_left])]
            (left, _), (right, _) = children
            growing.nodes[number][LEFT : THRESHOLD + 1] = [left, right, feature, threshold]
            growing.nodes[number][DEFAULT_LEFT - 1] = gain
            following += children
        level = following
    tree = torch.zeros(algorithm.largest_tree, FIELDS)
    tree[:, LEFT] = PADDING
    tree[: len(growing.nodes)] = torch.tensor(growing.nodes, dtype=torch.float32)
    return tree


def _node(growing: _Growing, members: Tensor, algorithm: TreesAlgorithm) -> int:
    """Adds a node of some rows, and returns its number."""
    gradient = growing.gradients[members].sum()
    hessian = growing.hessians[members].sum()
    weight = -gradient / (hessian + algorithm.reg_lambda)
    growing.nodes.append([-1.0, -1.0, 0.0, 0.0, float(weight), float(hessian), 0.0, 0.0])
    return len(growing.nodes) - 1


def _make_leaf(node: list[float], eta: float) -> None:
    """Writes the value of a leaf: its weight times the learning rate, in both places."""
    weight = node[THRESHOLD + 1]
    node[LEFT] = node[RIGHT] = -1.0
    node[THRESHOLD] = eta * weight
    node[THRESHOLD + 1] = eta * weight


def _best_split(growing: _Growing, members: Tensor, algorithm: TreesAlgorithm) -> tuple[int, float, float] | None:
    """Feature, threshold and gain of the split that lowers the loss most; None if none does."""
    best = None
    best_gain = 1e-6  # XGBoost's least gain of a split
    for feature in range(growing.rows.shape[1]):
        values, order = growing.rows[members, feature].sort()
        gradients = growing.gradients[members][order].cumsum(0)
        hessians = growing.hessians[members][order].cumsum(0)
        left_score = gradients.square() / (hessians + algorithm.reg_lambda)
        right_hessian = hessians[-1] - hessians
        right_score = (gradients[-1] - gradients).square() / (right_hessian + algorithm.reg_lambda)
        gains = left_score + right_score - left_score[-1]
        # A split lies between two different values, and both sides are heavy enough.
        is_allowed = torch.zeros(len(values), dtype=torch.bool)
        is_allowed[:-1] = values[:-1] < values[1:]
        is_allowed &= (hessians >= algorithm.min_child_weight) & (right_hessian >= algorithm.min_child_weight)
        gains = gains.masked_fill(~is_allowed, -torch.inf)
        place = int(gains.argmax())
        if float(gains[place]) > best_gain:
            best_gain = float(gains[place])
            threshold = float((values[place] + values[place + 1]) / 2)
            best = (feature, threshold, best_gain)
    return best
