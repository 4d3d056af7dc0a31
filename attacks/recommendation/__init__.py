"""Attacks on federated recommendation: which of the served items did a client interact with?"""

from attacks.recommendation.imia import IMIA
from attacks.recommendation.item_deltas import Direction, RowNorm
from attacks.recommendation.matched_filter import MatchedFilter
from attacks.recommendation.raifle import Raifle

__all__ = ["IMIA", "Direction", "MatchedFilter", "Raifle", "RowNorm"]
