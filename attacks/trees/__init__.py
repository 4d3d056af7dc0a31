"""Attacks on decision trees: how many rows does a client have in each leaf, and which rows?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.attacks.trees.tree_counts import TreeCounts as TreeCounts
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "TreeCounts": "fedleak.attacks.trees.tree_counts",
        },
    )
