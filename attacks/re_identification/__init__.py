"""Attacks on anonymity: whose device sent a message?"""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from attacks.re_identification.baselines import CountsOnly as CountsOnly
    from attacks.re_identification.baselines import IdentityChance as IdentityChance
    from attacks.re_identification.fingerprint import FingerprintAttack as FingerprintAttack
    from attacks.re_identification.plda import PLDA as PLDA
    from attacks.re_identification.profile_contrast import ProfileContrast as ProfileContrast
    from attacks.re_identification.profile_contrast import ProfileWords as ProfileWords
    from attacks.re_identification.reidentification import CentredSVM as CentredSVM
    from attacks.re_identification.reidentification import ReidKNN as ReidKNN
    from attacks.re_identification.reidentification import ReidMLP as ReidMLP
    from attacks.re_identification.reidentification import ReidSVM as ReidSVM
    from attacks.re_identification.word_counts import WordCounts as WordCounts

__all__ = exports(__name__)
