"""Attacks of any kind over a recording that lies on disk."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from attacks.base import Attack
from attacks.deanonymization.estimates import IdentityEstimate, MatchingEstimate
from datamodules.deltas import Recording
from datamodules.messages import joined_view, message_users
from errors import InputError
from modules.recorded_learner import recorded_learner
from reports.evaluation import Evaluation, evaluate
from reports.identities import evaluate_identities
from reports.identity_looks import Look, look_at
from reports.judging import is_attack

AUDITED = [
    *("auc", "f1", "error", "l1", "l2", "linf", "null_false_positive", "null_false_negative", "coverage"),
    *("ap", "times-chance", "top1", "top5", "tpr", "fpr"),
]
"""What is reported of a recording, as far as its attacks can be scored so."""


def evaluate_recording(
    recording: Recording,
    attacks: Sequence[Attack],
    *,
    seed: int,
    victims: int | None = None,
    rounds: Sequence[int] | None = None,
    progress: bool = True,
) -> Evaluation:
    """Runs attacks and scores them, those on anonymity over all messages together; here the truth is opened.

    Args:
        recording: what the server saw.
        attacks: what to run, all on anonymity or none.
        seed: seed of the attacks' draws.
        victims: attack only so many victims, drawn at random; attacks on anonymity need all.
        rounds: which rounds, None for all.
        progress: show a bar.
    """
    manifest = recording.manifest
    setting = {"data": manifest.data["name"]}
    if manifest.learner is not None and manifest.learner["name"] != "fncf":
        setting["learner"] = manifest.learner["name"]
    if all(asks_who(attack) for attack in attacks):
        return attack_identities(recording, attacks, seed=seed, setting=setting, rounds=rounds, progress=progress)
    return evaluate(
        recording,
        attacks,
        seed=seed,
        setting=setting,
        learner=recorded_learner(recording),
        victims=victims,
        rounds=rounds,
        progress=progress,
    )


def nothing_scored(missing: Mapping[str, str]) -> InputError:
    """What to say of a recording that no attack could be scored on.

    Args:
        missing: by attack, what it lacks.
    """

    def far(name: str) -> tuple[bool, bool, bool, int]:
        """What lacks the truth alone is nearest, then what lacks a learner that the manifest may name."""
        reason = missing[name]
        ends = reason.endswith(" lacks learner")
        return not is_attack(name), not reason.startswith("without "), not ends, reason.count(",")

    least = missing[min(missing, key=far)] if missing else "no victims"
    names = ", ".join(name for name, reason in missing.items() if reason == least)
    return InputError(
        expected="a recording that at least one attack can be scored on",
        found=f"none; the nearest is {names}: {least}" if names else least,
        way_out="Say in the recording's manifest which learner the clients run, and keep its truth/"
        " (docs/recording-format.md), or run an attack of your own: attack.py run --attack PACKAGE.CLASS.",
    )


def asks_who(attack: Attack) -> bool:
    """Whether an attack names devices or matches messages."""
    return attack.estimates in (IdentityEstimate, MatchingEstimate)


def attack_identities(
    recording: Recording,
    attacks: Sequence[Attack],
    *,
    seed: int,
    setting: Mapping[str, Any],
    rounds: Sequence[int] | None = None,
    progress: bool = True,
) -> Evaluation:
    """Runs attacks on all messages of a recording and scores them; here the truth is opened.

    Args:
        recording: with known devices.
        attacks: that ask who.
        seed: seed of the attacks' draws.
        setting: the cell that the rows belong to.
        rounds: which rounds, None for all.
        progress: show a bar with the time left.
    """
    view = joined_view(recording, learner=recorded_learner(recording), rounds=rounds)
    assert view.known is not None
    users = torch.cat([message_users(recording, view), message_users(recording, view.known)])
    seen, truth = look_at(view, users, Look(), seed=seed, roles=torch.zeros(int(users.max()) + 1, dtype=torch.int64))
    return evaluate_identities(seen, truth, attacks, seed=seed, setting=setting, progress=progress)
