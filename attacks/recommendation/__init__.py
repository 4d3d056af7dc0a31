"""Attacks on federated recommendation: which of the served items did a client interact with?"""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from attacks.recommendation.imia import IMIA as IMIA
    from attacks.recommendation.item_deltas import Direction as Direction
    from attacks.recommendation.item_deltas import RowNorm as RowNorm
    from attacks.recommendation.matched_filter import MatchedFilter as MatchedFilter
    from attacks.recommendation.raifle import Raifle as Raifle

__all__ = exports(__name__)
