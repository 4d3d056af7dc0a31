"""Attacks on anonymity over a recording that lies on disk."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from attacks.base import Attack
from attacks.deanonymization.estimates import IdentityEstimate, MatchingEstimate
from datamodules.deltas import Recording
from datamodules.messages import joined_view, message_users
from datamodules.prior_knowledge import PSEUDONYMS
from experiments.identity_attacks import IDENTITY_ATTACKS
from experiments.identity_looks import Look, look_at
from modules.registry import learner_from
from reports.evaluation import Evaluation
from reports.identities import evaluate_identities


def has_known_devices(recording: Recording) -> bool:
    """Whether the adversary has devices of its own in it, so that the others may be named."""
    return PSEUDONYMS in recording.auxiliary()


def identity_attacks() -> list[Attack]:
    """Every attack on anonymity, with its own defaults."""
    return [kind() for kind in IDENTITY_ATTACKS.values()]


def asks_who(attack: Attack) -> bool:
    """Whether an attack names devices or matches messages."""
    return attack.estimates in (IdentityEstimate, MatchingEstimate)


def attack_identities(
    recording: Recording, attacks: Sequence[Attack], *, seed: int, setting: Mapping[str, Any]
) -> Evaluation:
    """Runs attacks on all messages of a recording and scores them; here the truth is opened.

    Args:
        recording: with known devices.
        attacks: that ask who.
        seed: seed of the attacks' draws.
        setting: the cell that the rows belong to.
    """
    view = joined_view(recording, learner=learner_from(recording.manifest.learner))
    assert view.known is not None
    users = torch.cat([message_users(recording, view), message_users(recording, view.known)])
    seen, truth = look_at(view, users, Look(), seed=seed, roles=torch.zeros(int(users.max()) + 1, dtype=torch.int64))
    return evaluate_identities(seen, truth, attacks, seed=seed, setting=setting)
