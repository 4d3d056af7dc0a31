"""Attacks on federated recommendation: which of the served items did a client interact with?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.attacks.recommendation.imia import IMIA as IMIA
    from fedleak.attacks.recommendation.item_deltas import Direction as Direction
    from fedleak.attacks.recommendation.item_deltas import RowNorm as RowNorm
    from fedleak.attacks.recommendation.matched_filter import MatchedFilter as MatchedFilter
    from fedleak.attacks.recommendation.raifle import Raifle as Raifle

__all__ = exports(__name__)
