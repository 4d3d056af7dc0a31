"""Trees of a message as boxes: which values of a row lead to each node."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.client.tree_layout import DEFAULT_LEFT, FEATURE, HESSIAN, LEFT, PADDING, RIGHT, THRESHOLD, WEIGHT

_OUTSIDE = -1
"""Number of the parent of the root."""


@dataclass(frozen=True)
class TreeBoxes:
    """A tree of N nodes of rows with F features; children come after their parents.

    A row is in the box of a node if ``low <= value < high`` in each feature; a value that is missing, NaN, is in it if
    all splits of the feature on the way send rows without the value there.

    Attributes:
        left: ``(N,)`` int64 number of the left child, -1 of a leaf.
        right: ``(N,)`` int64 number of the right child, -1 of a leaf.
        parent: ``(N,)`` int64 number of the parent, -1 of the root.
        feature: ``(N,)`` int64 feature of the split; 0 of a leaf.
        threshold: ``(N,)`` float64: smaller values go left; of a leaf, its value, in log odds.
        weight: ``(N,)`` float64, as sent: of a leaf, times the learning rate.
        hessian: ``(N,)`` float64 sum of the Hessians of the node's rows, as sent.
        low: ``(N, F)`` float64.
        high: ``(N, F)`` float64.
        missing: ``(N, F)`` bool, whether rows without the value may come to the node.
        default_left: ``(N,)`` bool, whether rows without the value go left.

    Example:
        >>> import torch
        >>> nodes = torch.zeros(3, 8)
        >>> nodes[0, :4] = torch.tensor([1.0, 2.0, 1.0, 0.5])
        >>> nodes[1:, :2] = -1
        >>> boxes = TreeBoxes.of(nodes, features=2)
        >>> boxes.high.tolist()
        [[inf, inf], [inf, 0.5], [inf, inf]]
    """

    left: Tensor
    right: Tensor
    parent: Tensor
    feature: Tensor
    threshold: Tensor
    weight: Tensor
    hessian: Tensor
    low: Tensor
    high: Tensor
    missing: Tensor
    default_left: Tensor

    @classmethod
    def of(cls, tree: Tensor, *, features: int) -> "TreeBoxes | None":
        """The tree ``(N, 8)`` without its padding; None for padding only, and for numbers that are no tree."""
        if not bool(torch.isfinite(tree).all()):
            return None
        nodes = tree[tree[:, LEFT] != PADDING].double()
        count = len(nodes)
        left, right, feature = (nodes[:, field] for field in (LEFT, RIGHT, FEATURE))
        is_whole = bool((nodes[:, [LEFT, RIGHT, FEATURE]] == nodes[:, [LEFT, RIGHT, FEATURE]].round()).all())
        if count == 0 or not is_whole or not _is_tree(left, right):
            return None
        splits = left >= 0
        if bool((feature[splits] < 0).any()) or bool((feature[splits] >= features).any()):
            return None
        parent = torch.full((count,), _OUTSIDE)
        low = torch.full((count, features), -torch.inf, dtype=torch.float64)
        high = torch.full((count, features), torch.inf, dtype=torch.float64)
        missing = torch.ones(count, features, dtype=torch.bool)
        default_left = nodes[:, DEFAULT_LEFT] > 0
        for node in splits.nonzero().flatten().tolist():
            split_feature = int(feature[node])
            threshold = nodes[node, THRESHOLD]
            children = torch.stack([left[node], right[node]]).long()
            parent[children] = node
            low[children] = low[node].clone()
            high[children] = high[node].clone()
            missing[children] = missing[node].clone()
            # Rows without the value all go to one side.
            missing[children[int(default_left[node])], split_feature] = False
            # The left child has what is below the threshold, the right child the rest.
            high[children[0], split_feature] = high[node, split_feature].minimum(threshold)
            low[children[1], split_feature] = low[node, split_feature].maximum(threshold)
        return cls(
            left=left.long(),
            right=right.long(),
            parent=parent,
            feature=feature.long(),
            threshold=nodes[:, THRESHOLD],
            weight=nodes[:, WEIGHT],
            hessian=nodes[:, HESSIAN],
            low=low,
            high=high,
            missing=missing,
            default_left=default_left,
        )

    @property
    def is_leaf(self) -> Tensor:
        """``(N,)`` bool."""
        return self.left < 0

    @property
    def is_masked(self) -> bool:
        """Whether the sender has put ones in the place of the sums of Hessians.

        The sum of a node is that of its children, so that all are one only if they are no sums.
        """
        return len(self.left) > 1 and bool((self.hessian == 1).all())

    def leaf_of(self, rows: Tensor) -> Tensor:
        """``(R,)`` int64 number of the leaf in which each of the rows ``(R, F)`` ends; a missing value is NaN."""
        node = torch.zeros(len(rows), dtype=torch.int64)
        line = torch.arange(len(rows))
        while bool((self.left[node] >= 0).any()):
            values = rows[line, self.feature[node]]
            goes_left = torch.where(values.isnan(), self.default_left[node], values < self.threshold[node])
            child = torch.where(goes_left, self.left[node], self.right[node])
            node = torch.where(self.left[node] >= 0, child, node)
        return node

    def only_leaf(self, low: Tensor, high: Tensor, missing: Tensor) -> Tensor:
        """``(B,)`` int64 number of the leaf that holds each of the boxes ``(B, F)`` whole; -1 if several share it."""
        node = torch.zeros(len(low), dtype=torch.int64)
        is_shared = torch.zeros(len(low), dtype=torch.bool)
        boxes = torch.arange(len(low))
        # Each step goes one level down, until all boxes are at leaves or divided.
        while bool(((self.left[node] >= 0) & ~is_shared).any()):
            at_split = (self.left[node] >= 0) & ~is_shared
            feature = self.feature[node]
            threshold = self.threshold[node]
            has_missing = missing[boxes, feature]
            # Rows without the value go with the others, or there are none.
            may_go_left = self.default_left[node] | ~has_missing
            may_go_right = ~self.default_left[node] | ~has_missing
            goes_left = at_split & (high[boxes, feature] <= threshold) & may_go_left
            goes_right = at_split & (low[boxes, feature] >= threshold) & may_go_right
            is_shared |= at_split & ~goes_left & ~goes_right
            child = torch.where(goes_left, self.left[node], self.right[node])
            node = torch.where(goes_left | goes_right, child, node)
        return node.masked_fill(is_shared, -1)


def _is_tree(left: Tensor, right: Tensor) -> bool:
    """Whether each node but the first is the child of exactly one earlier node, and leaves have no children."""
    numbers = torch.arange(len(left))
    splits = left >= 0
    is_leaf = (left == -1) & (right == -1)
    if not bool((splits | is_leaf).all()):
        return False
    children = torch.cat([left[splits], right[splits]])
    parents = torch.cat([numbers[splits], numbers[splits]])
    if bool((children <= parents).any()):
        return False
    return bool(torch.equal(children.sort().values.long(), numbers[1:]))
