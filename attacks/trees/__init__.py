"""Attacks on decision trees: how many rows does a client have in each leaf, and which rows?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.attacks.trees.baselines import EvenCounts as EvenCounts
    from fedleak.attacks.trees.baselines import MajorityFields as MajorityFields
    from fedleak.attacks.trees.baselines import OwnColumns as OwnColumns
    from fedleak.attacks.trees.baselines import OwnRows as OwnRows
    from fedleak.attacks.trees.baselines import UnrelatedTree as UnrelatedTree
    from fedleak.attacks.trees.timberstrike import TimberStrike as TimberStrike
    from fedleak.attacks.trees.tree_counts import TreeCounts as TreeCounts
    from fedleak.attacks.trees.tree_rows import TreeRows as TreeRows
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "EvenCounts": "fedleak.attacks.trees.baselines",
            "MajorityFields": "fedleak.attacks.trees.baselines",
            "OwnColumns": "fedleak.attacks.trees.baselines",
            "OwnRows": "fedleak.attacks.trees.baselines",
            "UnrelatedTree": "fedleak.attacks.trees.baselines",
            "TimberStrike": "fedleak.attacks.trees.timberstrike",
            "TreeCounts": "fedleak.attacks.trees.tree_counts",
            "TreeRows": "fedleak.attacks.trees.tree_rows",
        },
    )
