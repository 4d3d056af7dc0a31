"""Attacks on anonymity: whose device sent a message?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

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
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "CountsOnly": "fedleak.attacks.re_identification.baselines",
            "IdentityChance": "fedleak.attacks.re_identification.baselines",
            "FingerprintAttack": "fedleak.attacks.re_identification.fingerprint",
            "PLDA": "fedleak.attacks.re_identification.plda",
            "ProfileContrast": "fedleak.attacks.re_identification.profile_contrast",
            "ProfileWords": "fedleak.attacks.re_identification.profile_contrast",
            "CentredSVM": "fedleak.attacks.re_identification.reidentification",
            "ReidKNN": "fedleak.attacks.re_identification.reidentification",
            "ReidMLP": "fedleak.attacks.re_identification.reidentification",
            "ReidSVM": "fedleak.attacks.re_identification.reidentification",
            "WordCounts": "fedleak.attacks.re_identification.word_counts",
        },
    )
