"""Which attacks on anonymity a recording on disk can be audited by."""

from attacks.base import Attack
from datamodules.deltas import Recording
from datamodules.prior_knowledge import PSEUDONYMS
from experiments.identity_attacks import IDENTITY_ATTACKS


def has_known_devices(recording: Recording) -> bool:
    """Whether the adversary has devices of its own in it, so that the others may be named."""
    return PSEUDONYMS in recording.auxiliary()


def identity_attacks() -> list[Attack]:
    """Every attack on anonymity, with its own defaults."""
    return [kind() for kind in IDENTITY_ATTACKS.values()]
