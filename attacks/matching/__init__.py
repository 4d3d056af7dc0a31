"""Attacks that match messages: which of them come from one user?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.attacks.matching.same_user import MatchingChance as MatchingChance
    from fedleak.attacks.matching.same_user import MatchingCounts as MatchingCounts
    from fedleak.attacks.matching.same_user import MatchingFingerprint as MatchingFingerprint
    from fedleak.attacks.matching.same_user import MatchingMLP as MatchingMLP
    from fedleak.attacks.matching.same_user import MatchingSiamese as MatchingSiamese

__all__ = exports(__name__)
