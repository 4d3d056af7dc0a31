"""Attacks on anonymity by name, those that are learned by Lightning among them."""

from attacks.base import Attack
from attacks.deanonymization.baselines import IdentityChance, MatchingChance
from attacks.deanonymization.fingerprint import Fingerprint, LinkedFingerprint
from attacks.deanonymization.matching_fingerprint import LinkedMatchingFingerprint, MatchingFingerprint
from attacks.deanonymization.published import ReidKNN, ReidSVM
from attacks.deanonymization.shared_part import CentredSVM
from modules.reidentification import MatchingMLP, ReidMLP
from modules.siamese import MatchingSiamese

IDENTITY_ATTACKS: dict[str, type[Attack]] = {
    kind.name: kind
    for kind in (
        *(IdentityChance, ReidSVM, ReidKNN, ReidMLP, CentredSVM, Fingerprint, LinkedFingerprint),
        *(MatchingChance, MatchingMLP, MatchingSiamese, MatchingFingerprint, LinkedMatchingFingerprint),
    )
}
"""``chance`` is another program on identities than on interactions, under one name."""
