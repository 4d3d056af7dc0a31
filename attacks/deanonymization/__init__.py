"""Attacks on anonymity: whose device sent a message, and which messages come from one user?"""

from attacks.deanonymization.fingerprint import FingerprintAttack, LinkedFingerprint
from attacks.deanonymization.matching import (
    LinkedMatchingFingerprint,
    MatchingChance,
    MatchingFingerprint,
    MatchingMLP,
    MatchingSiamese,
)
from attacks.deanonymization.reidentification import CentredSVM, IdentityChance, ReidKNN, ReidMLP, ReidSVM

__all__ = [
    "CentredSVM",
    "FingerprintAttack",
    "IdentityChance",
    "LinkedFingerprint",
    "LinkedMatchingFingerprint",
    "MatchingChance",
    "MatchingFingerprint",
    "MatchingMLP",
    "MatchingSiamese",
    "ReidKNN",
    "ReidMLP",
    "ReidSVM",
]
