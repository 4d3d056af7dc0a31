"""Attacks that match messages: which of them come from one user?"""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from attacks.matching.same_user import MatchingChance as MatchingChance
    from attacks.matching.same_user import MatchingCounts as MatchingCounts
    from attacks.matching.same_user import MatchingFingerprint as MatchingFingerprint
    from attacks.matching.same_user import MatchingMLP as MatchingMLP
    from attacks.matching.same_user import MatchingSiamese as MatchingSiamese

__all__ = exports(__name__)
