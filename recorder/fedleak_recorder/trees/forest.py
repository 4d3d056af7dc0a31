"""Trees as arrays: the layout of a recording, and its checks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedleak_recorder.arrays import Array
from fedleak_recorder.errors import require

LEFT, RIGHT, FEATURE, THRESHOLD, WEIGHT, HESSIAN, GAIN, DEFAULT_LEFT = range(8)
"""Fields of a node, see `fedleak.client.tree_layout`."""
FIELDS = 8
"""Number of fields of a node."""
PADDING = -2
"""The left child of a line that is no node; its other fields are 0."""
LARGEST_INDEX = 2**24
"""Numbers of nodes and features are below it, so that float32 holds them exactly."""
MOST_NODES = 2**18
"""Nodes of a tree: a full one of depth 17."""
MOST_NUMBERS = 2**25
"""Numbers of a padded forest: 128 MiB."""


@dataclass(frozen=True)
class Forest:
    """Trees that were grown one after the other, and what they add to.

    Attributes:
        trees: ``(T, N, 8)`` float32 nodes, padded.
        base_score: score before the first tree, as the file states it: a probability for ``binary:logistic``.
        features: number of columns.
        objective: loss, by XGBoost's name.

    Example:
        >>> import numpy as np
        >>> leaf = np.array([[-1, -1, 0, 0.5, 0.5, 3, 0, 0]])
        >>> forest = Forest(stacked([leaf], where="an example"), 0.5, 4, "binary:logistic")
        >>> forest.padded(2, 3, where="an example").shape
        (2, 3, 8)
    """

    trees: Array
    base_score: float
    features: int
    objective: str

    @property
    def depth(self) -> int:
        """Largest number of splits between a root and a leaf; 0 without a tree."""
        deepest = 0
        for tree in self.trees:
            depth = 0
            level = np.zeros(1, np.int64)
            # From one level to the next: the children of its splits.
            while True:
                splits = level[tree[level, LEFT] >= 0]
                if not len(splits):
                    break
                level = tree[splits][:, [LEFT, RIGHT]].astype(np.int64).ravel()
                depth += 1
            deepest = max(deepest, depth)
        return deepest

    def begins_with(self, earlier: "Forest", *, where: str) -> bool:
        """Whether the first trees are those of an earlier forest, each number of them."""
        count = len(earlier.trees)
        if len(self.trees) < count:
            return False
        nodes = max(self.trees.shape[1], earlier.trees.shape[1])
        first = self.padded(len(self.trees), nodes, where=where)[:count]
        return np.array_equal(first, earlier.padded(count, nodes, where=where))

    def continues(self, earlier: "Forest", *, where: str) -> bool:
        """Whether it is an earlier forest with further trees, and no forest grown anew.

        Splits and their numbers do not agree by chance; single leaves do, as trees that find no split repeat them.
        """
        has_split = bool((earlier.trees[:, 0, LEFT] >= 0).any())
        return has_split and len(self.trees) > len(earlier.trees) and self.begins_with(earlier, where=where)

    def padded(self, trees: int, nodes: int, *, where: str) -> Array:
        """``(trees, nodes, 8)`` the same with more padding.

        Raises:
            InputError: there are more trees or nodes.
        """
        count, longest, _ = self.trees.shape
        require(
            count <= trees and longest <= nodes,
            f"at most {trees} trees of at most {nodes} nodes in {where}",
            f"{count} trees of up to {longest} nodes",
            "Record with more trees or a larger depth.",
        )
        padded = padding_trees(trees, nodes)
        padded[:count, :longest] = self.trees
        return padded

    def after(self, earlier: "Forest", *, where: str) -> "Forest":
        """The trees that were added to an earlier forest, as in the message of a client that sends the whole model.

        Raises:
            InputError: the forest does not begin with the earlier one.
        """
        count = len(earlier.trees)
        require(
            self.begins_with(earlier, where=where),
            f"a model in {where} that begins with the {count} trees of the global one",
            f"{len(self.trees)} trees, others among them",
            "Record the model that the client was sent.",
        )
        return Forest(self.trees[count:], self.base_score, self.features, self.objective)


def padding_trees(trees: int, nodes: int) -> Array:
    """``(trees, nodes, 8)`` float32 of padding."""
    empty = np.zeros((trees, nodes, FIELDS), np.float32)
    empty[:, :, LEFT] = PADDING
    return empty


def stacked(trees: Sequence[Array], *, where: str) -> Array:
    """``(T, N, 8)`` float32 of trees ``(n, 8)`` of different numbers of nodes.

    Raises:
        InputError: the padded trees would be too large.
    """
    longest = max((len(tree) for tree in trees), default=1)
    numbers = len(trees) * longest * FIELDS
    require(
        numbers <= MOST_NUMBERS,
        f"at most {MOST_NUMBERS} numbers in the trees of {where}, which are padded to the largest one",
        f"{len(trees)} trees of up to {longest} nodes",
        "Send fewer trees in a message.",
    )
    padded = padding_trees(len(trees), longest)
    for place, tree in zip(padded, trees, strict=True):
        place[: len(tree)] = tree
    return padded
