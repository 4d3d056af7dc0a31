"""The layout of decision trees in a recording: nodes with eight numbers each, and the way of a row through them.

A tree is ``(N, 8)`` float32, one line for each node, the root first; smaller trees are padded at the end. A split sends
a row to the left where its value is below the threshold, as XGBoost does.
"""

import torch
from torch import Tensor

LEFT, RIGHT, FEATURE, THRESHOLD, WEIGHT, HESSIAN, GAIN, DEFAULT_LEFT = range(8)
"""Fields of a node.

``LEFT``: index of the left child, -1 for a leaf, `PADDING` for no node. ``RIGHT``: that of the right child, -1 for a
leaf. ``FEATURE``: the column of a split. ``THRESHOLD``: rows with a value below it go left; of a leaf its value, the
learning rate times the weight. ``WEIGHT``: XGBoost's base weight, times the learning rate only for leaves.
``HESSIAN``: sum of the rows' second derivatives; ones where the sender masks it. ``GAIN``: by how much the split lowers
the loss. ``DEFAULT_LEFT``: 1 where rows without the value go left.
"""
FIELDS = 8
"""Number of fields of a node."""
PADDING = -2
"""``LEFT`` of a line that is no node; its other fields are 0."""
LARGEST_INDEX = 2**24
"""Indices of nodes and features are below it, so that float32 holds them exactly."""


def leaves_of(tree: Tensor, rows: Tensor) -> Tensor:
    """``(R,)`` int64 index of the leaf in which each row ends; 0, the root, for a tree of padding.

    Args:
        tree: ``(N, 8)`` nodes, each child after its parent.
        rows: ``(R, F)`` float32 rows; a missing value is NaN.

    Raises:
        IndexError: a child is no node, or the rows have no such feature.
        ValueError: a child stands before its parent.

    Example:
        >>> import torch
        >>> split = torch.tensor([1.0, 2, 0, 0.5, 0, 4, 1, 0])
        >>> low = torch.tensor([-1.0, -1, 0, -0.3, -0.3, 2, 0, 0])
        >>> high = torch.tensor([-1.0, -1, 0, 0.3, 0.3, 2, 0, 0])
        >>> leaves_of(torch.stack([split, low, high]), torch.tensor([[0.2], [0.7], [torch.nan]]))
        tensor([1, 2, 2])
    """
    node = torch.zeros(len(rows), dtype=torch.int64)
    line = torch.arange(len(rows))
    while True:
        fields = tree[node]
        at_split = fields[:, LEFT] >= 0
        if not bool(at_split.any()):
            return node
        value = rows[line, torch.where(at_split, fields[:, FEATURE], 0).long()]
        goes_left = value < fields[:, THRESHOLD]
        # A row without the value takes the side that the tree has learned for it.
        goes_left = torch.where(value.isnan(), fields[:, DEFAULT_LEFT] > 0, goes_left)
        child = torch.where(goes_left, fields[:, LEFT], fields[:, RIGHT]).long()
        # Children stand after their parents, so that every way ends.
        if bool((at_split & (child <= node)).any()):
            raise ValueError("a node of a tree has a child that stands before it")
        node = torch.where(at_split, child, node)


def nodes_of(tree: Tensor, rows: Tensor) -> Tensor:
    """``(R, N)`` bool: the nodes through which each row passes, with its leaf; none for a tree of padding.

    Args:
        tree: ``(N, 8)`` nodes, each child after its parent.
        rows: ``(R, F)`` float32 rows; a missing value is NaN.

    Example:
        >>> import torch
        >>> split = torch.tensor([1.0, 2, 0, 0.5, 0, 4, 1, 0])
        >>> low = torch.tensor([-1.0, -1, 0, -0.3, -0.3, 2, 0, 0])
        >>> high = torch.tensor([-1.0, -1, 0, 0.3, 0.3, 2, 0, 0])
        >>> nodes_of(torch.stack([split, low, high]), torch.tensor([[0.2], [0.7]]))
        tensor([[ True,  True, False],
                [ True, False,  True]])
    """
    passed = torch.zeros(len(rows), len(tree), dtype=torch.bool)
    leaves = leaves_of(tree, rows)
    if float(tree[0, LEFT]) == PADDING:
        return passed
    passed[torch.arange(len(rows)), leaves] = True
    # A node is passed if one of its children is; children stand after their parents.
    for node in reversed(range(len(tree))):
        left = int(tree[node, LEFT])
        if left >= 0:
            passed[:, node] |= passed[:, left] | passed[:, int(tree[node, RIGHT])]
    return passed


def margins(trees: Tensor, rows: Tensor) -> Tensor:
    """``(R,)`` float32 sum of the values of the leaves in which each row ends, without the base score.

    Args:
        trees: ``(T, N, 8)`` trees; padding adds nothing.
        rows: ``(R, F)`` float32 rows; a missing value is NaN.

    Example:
        >>> import torch
        >>> split = torch.tensor([1.0, 2, 0, 0.5, 0, 4, 1, 0])
        >>> low = torch.tensor([-1.0, -1, 0, -0.3, -0.3, 2, 0, 0])
        >>> high = torch.tensor([-1.0, -1, 0, 0.3, 0.3, 2, 0, 0])
        >>> tree = torch.stack([split, low, high])
        >>> margins(torch.stack([tree, tree]), torch.tensor([[0.2], [0.7]]))
        tensor([-0.6000,  0.6000])
    """
    total = torch.zeros(len(rows), dtype=torch.float32)
    for tree in trees:
        total += tree[leaves_of(tree, rows), THRESHOLD]
    return total


def padding_trees(trees: int, nodes: int) -> Tensor:
    """``(T, N, 8)`` float32 trees of padding.

    Example:
        >>> padding_trees(1, 1)
        tensor([[[-2.,  0.,  0.,  0.,  0.,  0.,  0.,  0.]]])
    """
    empty = torch.zeros(trees, nodes, FIELDS)
    empty[:, :, LEFT] = PADDING
    return empty


def tree_count(trees: Tensor) -> int:
    """Number of trees that are no padding, of ``trees (T, N, 8)``.

    Example:
        >>> tree_count(padding_trees(3, 7))
        0
    """
    return int((trees[:, 0, LEFT] != PADDING).sum())
