"""Attacks on anonymity: whose device sent a message?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.attacks.re_identification.baselines import CountsOnly as CountsOnly
    from fedleak.attacks.re_identification.baselines import IdentityChance as IdentityChance
    from fedleak.attacks.re_identification.fingerprint import FingerprintAttack as FingerprintAttack
    from fedleak.attacks.re_identification.plda import PLDA as PLDA
    from fedleak.attacks.re_identification.profile_contrast import ProfileContrast as ProfileContrast
    from fedleak.attacks.re_identification.profile_contrast import ProfileWords as ProfileWords
    from fedleak.attacks.re_identification.reidentification import CentredSVM as CentredSVM
    from fedleak.attacks.re_identification.reidentification import ReidKNN as ReidKNN
    from fedleak.attacks.re_identification.reidentification import ReidMLP as ReidMLP
    from fedleak.attacks.re_identification.reidentification import ReidSVM as ReidSVM
    from fedleak.attacks.re_identification.word_counts import WordCounts as WordCounts

__all__ = exports(__name__)
