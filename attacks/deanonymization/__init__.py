"""Attacks on anonymity: whose device sent a message, and which messages come from one user?"""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from attacks.deanonymization.baselines import CountsOnly as CountsOnly
    from attacks.deanonymization.baselines import IdentityChance as IdentityChance
    from attacks.deanonymization.baselines import MatchingChance as MatchingChance
    from attacks.deanonymization.baselines import MatchingCounts as MatchingCounts
    from attacks.deanonymization.fingerprint import FingerprintAttack as FingerprintAttack
    from attacks.deanonymization.matching import MatchingFingerprint as MatchingFingerprint
    from attacks.deanonymization.matching import MatchingMLP as MatchingMLP
    from attacks.deanonymization.matching import MatchingSiamese as MatchingSiamese
    from attacks.deanonymization.plda import PLDA as PLDA
    from attacks.deanonymization.profile_contrast import ProfileContrast as ProfileContrast
    from attacks.deanonymization.profile_contrast import ProfileWords as ProfileWords
    from attacks.deanonymization.reidentification import CentredSVM as CentredSVM
    from attacks.deanonymization.reidentification import ReidKNN as ReidKNN
    from attacks.deanonymization.reidentification import ReidMLP as ReidMLP
    from attacks.deanonymization.reidentification import ReidSVM as ReidSVM
    from attacks.deanonymization.word_counts import WordCounts as WordCounts

__all__ = exports(__name__)
