"""Attacks that match messages: which of them come from one user?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.attacks.matching.same_user import MatchingChance as MatchingChance
    from fedleak.attacks.matching.same_user import MatchingCounts as MatchingCounts
    from fedleak.attacks.matching.same_user import MatchingFingerprint as MatchingFingerprint
    from fedleak.attacks.matching.same_user import MatchingMLP as MatchingMLP
    from fedleak.attacks.matching.same_user import MatchingSiamese as MatchingSiamese
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "MatchingChance": "fedleak.attacks.matching.same_user",
            "MatchingCounts": "fedleak.attacks.matching.same_user",
            "MatchingFingerprint": "fedleak.attacks.matching.same_user",
            "MatchingMLP": "fedleak.attacks.matching.same_user",
            "MatchingSiamese": "fedleak.attacks.matching.same_user",
        },
    )
