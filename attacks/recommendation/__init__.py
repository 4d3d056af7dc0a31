"""Attacks on federated recommendation: which of the served items did a client interact with?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.attacks.recommendation.imia import IMIA as IMIA
    from fedleak.attacks.recommendation.item_deltas import Direction as Direction
    from fedleak.attacks.recommendation.item_deltas import RowNorm as RowNorm
    from fedleak.attacks.recommendation.matched_filter import MatchedFilter as MatchedFilter
    from fedleak.attacks.recommendation.raifle import Raifle as Raifle
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "IMIA": "fedleak.attacks.recommendation.imia",
            "Direction": "fedleak.attacks.recommendation.item_deltas",
            "RowNorm": "fedleak.attacks.recommendation.item_deltas",
            "MatchedFilter": "fedleak.attacks.recommendation.matched_filter",
            "Raifle": "fedleak.attacks.recommendation.raifle",
        },
    )
