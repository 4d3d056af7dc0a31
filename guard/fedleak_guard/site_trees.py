"""Trees of a message: which are the site's own, and how many of its rows end in each leaf."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedleak_guard.message import Message
from fedleak_guard.plain_message import is_row_of_bytes
from fedleak_recorder.arrays import Array
from fedleak_recorder.errors import InputError, require
from fedleak_recorder.trees import read_forest, read_values
from fedleak_recorder.trees.forest import DEFAULT_LEFT, FEATURE, LEFT, PADDING, RIGHT, THRESHOLD, Forest

_WAY_OUT = "Send each model of trees as one row of bytes, as Booster.save_raw gives it, in JSON or UBJ."
_DEEPEST = 32
"""Levels of a model; XGBoost's have 8."""
_OF_A_TREE = frozenset(
    {"base_weights", "categories", "categories_nodes", "categories_segments", "categories_sizes", "default_left", "id"}
    | {"left_children", "loss_changes", "parents", "right_children", "split_conditions", "split_indices", "split_type"}
    | {"sum_hessian", "tree_param"}
)
"""Parts of a tree that XGBoost writes: numbers of nodes, which the limits on trees are about."""


@dataclass(frozen=True)
class LeafCounts:
    """Rows of the site in the leaves of a tree.

    Attributes:
        rows: ``(L,)`` rows that end in each leaf.
        positives: ``(L,)`` those of them with a label above 0.
    """

    rows: Array
    positives: Array

    @property
    def smallest_class(self) -> int:
        """Least number of positive or of negative rows in a leaf."""
        return int(np.minimum(self.positives, self.rows - self.positives).min())


def site_forests(message: Message) -> Iterator[Forest]:
    """The trees of each tensor of a message that the site did not receive.

    Where a message begins with the whole forest that the site received under the same name, the trees behind it are the
    site's. All trees of any other message are.

    Raises:
        InputError: a tensor is no model of XGBoost with trees as `fedleak_recorder.trees.read_forest` reads them.
    """
    for name, value in message.tensors.items():
        where = f"{name[:80]!r}"
        require(is_row_of_bytes(value), f"trees as {where}", f"{value.dtype} of shape {value.shape}", _WAY_OUT)
        forest = read_forest(value.tobytes(), where=where)
        before = message.model.get(name)
        if before is not None and is_row_of_bytes(before) and before.size:
            received = read_forest(before.tobytes(), where=f"the received {where}")
            # Single leaves agree by chance, so that a forest of these alone is no beginning.
            if forest.continues(received, where=where):
                forest = forest.after(received, where=where)
        yield forest


def beside_trees(content: bytes) -> Any:
    """What a model holds besides its trees and base score, such as attributes, and lists that XGBoost does not write.

    Example:
        >>> beside_trees(b'{"learner": {"attributes": {"best": "7"}, "learner_model_param": {"base_score": "5E-1"}}}')
        {'learner': {'attributes': {'best': '7'}, 'learner_model_param': {}}}
    """
    return _without(read_values(content), "", depth=0)


def _without(value: Any, above: str, *, depth: int) -> Any:
    """A copy of a value without what the limits on trees are about, where `above` is the name of what holds it."""
    require(depth <= _DEEPEST, f"at most {_DEEPEST} levels in a model of trees", "more", _WAY_OUT)
    if isinstance(value, Mapping):
        rest = {}
        for key, part in value.items():
            is_of_trees = (above == "trees" and key in _OF_A_TREE) or (
                above == "learner_model_param" and key == "base_score"
            )
            if not is_of_trees:
                rest[key] = _without(part, key, depth=depth + 1)
        return rest
    if isinstance(value, list) and above == "trees":
        return [_without(part, above, depth=depth + 1) for part in value]
    return value


def leaf_counts(tree: Array, rows: Array, labels: Array) -> LeafCounts:
    """How many rows end in each leaf, by the way of XGBoost.

    Args:
        tree: ``(N, 8)`` nodes, see docs/audit/trees.md.
        rows: ``(R, F)`` numbers; a missing one is NaN.
        labels: ``(R,)`` classes, positive above 0.

    Example:
        >>> import numpy as np
        >>> split, leaf = [1, 2, 0, 0.5, 0, 4, 1, 0], [-1, -1, 0, 0.3, 0.3, 2, 0, 0]
        >>> tree = np.array([split, leaf, leaf], np.float32)
        >>> leaf_counts(tree, np.array([[0.2], [0.7], [np.nan]]), np.array([0, 1, 1])).rows
        array([1, 2])
    """
    # XGBoost compares in single precision.
    values = rows.astype(np.float32)
    node = np.zeros(len(values), np.int64)
    line = np.arange(len(values))
    while True:
        fields = tree[node]
        is_at_split = fields[:, LEFT] >= 0
        if not is_at_split.any():
            break
        value = values[line, np.where(is_at_split, fields[:, FEATURE], 0).astype(np.int64)]
        goes_left = value < fields[:, THRESHOLD]
        # A row without the value takes the side that the tree has learned for it.
        goes_left = np.where(np.isnan(value), fields[:, DEFAULT_LEFT] > 0, goes_left)
        child = np.where(goes_left, fields[:, LEFT], fields[:, RIGHT]).astype(np.int64)
        # Children stand after their parents, so that every way ends.
        node = np.where(is_at_split, child, node)
    is_leaf = (tree[:, LEFT] < 0) & (tree[:, LEFT] != PADDING)
    counts = np.bincount(node, minlength=len(tree))[is_leaf]
    positives = np.bincount(node[labels > 0], minlength=len(tree))[is_leaf]
    return LeafCounts(counts, positives)


def site_rows(message: Message, features: int) -> tuple[Array, Array]:
    """``(R, F)`` the site's rows and ``(R,)`` their labels, that a tree of the message was grown on.

    Raises:
        InputError: they do not fit each other, the trees, or the number of examples that the client reports.
    """
    rows = np.asarray(message.records)
    labels = np.asarray(message.labels).reshape(-1)
    expected = f"rows of the {features} columns of the trees with one label each, as numbers"
    shapes = f"{rows.dtype} {rows.shape} and {labels.dtype} {labels.shape}"
    are_rows = rows.ndim == 2 and rows.shape[1] == features and len(rows) == len(labels) and len(rows) > 0
    are_numbers = rows.dtype.kind in "biuf" and labels.dtype.kind in "biuf"
    way_out = "Give the table that the trees were grown on, as own.data or in the message."
    require(are_rows and are_numbers, expected, shapes, way_out)
    is_whole = message.examples is None or message.examples == len(rows)
    if not is_whole:
        raise InputError(
            expected=f"the {message.examples} rows that the client says to have trained on",
            found=f"{len(rows)} rows of the site",
            way_out=way_out,
        )
    return rows, labels


def require_classes(labels: Array) -> None:
    """Refuses labels that are no two classes, of which neither is counted then."""
    are_classes = bool(np.isin(labels, (0, 1)).all())
    require(are_classes, "labels of 0 and 1 under trees.smallest_class", "others", "Use trees.smallest_leaf alone.")
