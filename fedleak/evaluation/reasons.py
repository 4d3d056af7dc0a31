"""Why attacks did not run or were not scored, as text: what lacks, and what to do about it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fedleak.core.errors import InputError
from fedleak.evaluation.time_budget import LATE
from fedleak_recorder.format import ATTRIBUTE_PSEUDONYMS, CANARY_PSEUDONYMS

if TYPE_CHECKING:
    from fedleak.core.attack import Attack

UNSCORED, INAPPLICABLE = "without ", "the question does not apply: "
"""Starts of reasons."""
_SLOW = "it is slow"
_LACKS, OTHERS = "the recording lacks ", "it needs "
_LEARNER = "the clients' training algorithm"
_REMEDIES = {
    "algorithm": "add `learner:` to the manifest, or give --learner my_package.MyLearner",
    "known": "give the adversary devices of its own: known_pseudonyms and known_users in `auxiliary:`",
    "served": "give an array `served` with the items shown to each client",
    "lists": "give an array `lists` with the ranked list of each item",
    "features": "give an array `features` with the features of the items as sent",
    "sent_in": "record two rounds or more",
}
"""What to do about a field that a view lacks."""
_PLAIN = {
    "algorithm": _LEARNER,
    "learner": _LEARNER,
    "known": "devices of the server's own, whose users it knows",
    "pairs": "devices of the server's own, whose users it knows",
    "served": "the items that the server showed",
    "lists": "the ranked lists that it showed",
    "features": "the features of the items",
    "sent_in": "several rounds",
    "participants": "sums of updates",
    "model": "the global model",
    "releases": "noise or clipping that the clients declare",
    "deltas": "the updates of the parameters in question",
    "auxiliary": "data of the server's own",
}
"""Fields of a view in plain words."""
_PLAIN_DATA = {
    "candidates": "a pool of records of which the clients hold some",
    "candidate_labels": "a pool of records of which the clients hold some",
    "images": "labelled examples of the server's own",
    "labels": "labelled examples of the server's own",
    "prior_features": "examples of people who are no clients",
    "prior_labels": "examples of people who are no clients",
    "prior_users": "examples of people who are no clients",
    "columns": "the columns of the table",
    "public_interactions": "interactions of people who are no clients",
    ATTRIBUTE_PSEUDONYMS: "updates of people whose attributes the server knows",
    CANARY_PSEUDONYMS: "canaries",
}
"""Data of the server in plain words, by their entry of `auxiliary:`."""


def reasons(missing: Mapping[str, str]) -> list[str]:
    """One sentence per reason for which attacks could not run."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, reason in missing.items():
        names[reason].append(name)
    return [f"{', '.join(of_reason)} could not run: {reason}." for reason, of_reason in names.items()]


def nearest_reason(missing: Mapping[str, str]) -> str:
    """Reason of the attack that lacks least; ``missing`` has the reason by attack, and is not empty.

    The order: only the ground truth is lacking, only time, the learner, other data, of which fewer come first; then
    attacks on clients of another kind, and last those whose question does not apply.
    """
    reasons = list(missing.values())

    def distance(reason: str) -> tuple[bool, bool, bool, bool, bool, int, int]:
        lacking = reason.partition(";")[0]
        return (
            is_inapplicable(reason),
            not is_unscored(reason),
            not (is_slow(reason) or is_late(reason)),
            not is_lacking(reason),
            _LEARNER not in reason,
            lacking.count(","),
            -reasons.count(reason),
        )

    return min(reasons, key=distance)


def nothing_scored(missing: Mapping[str, str], attacks: Sequence["Attack"]) -> InputError:
    """Error for a recording on which none of `attacks` could be scored; `missing` holds the reason by attack."""
    baselines = {attack.name for attack in attacks if attack.baseline}
    of_attacks = {name: reason for name, reason in missing.items() if name not in baselines}
    least = nearest_reason(of_attacks or missing) if missing else "no victims"
    names = ", ".join(name for name, reason in missing.items() if reason == least)
    return InputError(
        expected="a recording that at least one attack can be scored on",
        found=f"none; the nearest is {names}: {least}" if names else least,
        way_out="Name the clients' learner in the recording's manifest and keep its truth/"
        " (docs/reference/recording-format.md), or run an attack of your own: fedleak run DIR --attack PACKAGE.CLASS.",
    )


def lacks(lacking: Sequence[str]) -> str:
    """Reason that a recording lacks needs of an attack: in plain words, and by name what to add to it."""
    by_field: dict[str, list[str]] = defaultdict(list)
    for need in lacking:
        field, _, entry = need.partition(":")
        by_field[field].append(entry)
    plain, ways_out = [], []
    for field, entries in by_field.items():
        plain += [_PLAIN_DATA.get(entry, _PLAIN.get(field, field)) for entry in entries]
        remedy = _remedy(field, entries)
        if remedy is not None:
            ways_out.append(remedy)
    return "; ".join([_LACKS + ", ".join(dict.fromkeys(plain)), *dict.fromkeys(ways_out)])


def slow_reason(attack: "Attack") -> str:
    """Reason why an attack was left out that takes minutes."""
    return f"{_SLOW} ({attack.cost}); add --slow to run it on {attack.audited_victims} clients"


def is_slow(reason: str) -> bool:
    """Whether an attack was left out because it takes minutes."""
    return reason.startswith(_SLOW)


def is_late(reason: str) -> bool:
    """Whether an attack was left out because the time of the audit was not enough."""
    return reason.startswith(LATE)


def is_inapplicable(reason: str) -> bool:
    """Whether the question of an attack cannot be asked of the recorded system, see `Estimate.inapplicable`."""
    return reason.startswith(INAPPLICABLE)


def why_inapplicable(reason: str) -> str:
    """The clause behind the start of such a reason."""
    return reason.removeprefix(INAPPLICABLE)


def needs_other_clients(reason: str) -> bool:
    """Whether an attack is on clients of another kind, which the reason describes up to a semicolon."""
    return reason.startswith(OTHERS)


def is_lacking(reason: str) -> bool:
    """Whether the recording lacks what an attack needs besides the ground truth."""
    return reason.startswith(_LACKS)


def is_unscored(reason: str) -> bool:
    """Whether an attack lacks nothing but ground truth."""
    return reason.partition("; ")[0].startswith(UNSCORED)


def _remedy(field: str, entries: list[str]) -> str | None:
    """What to do about a field or its entries; None if nothing is known."""
    if entries == [CANARY_PSEUDONYMS]:
        return "train with the defence Canaries, see docs/audit/canaries.md"
    if field == "auxiliary":
        return f"add {', '.join(entries)} to the server's data (`auxiliary:`)"
    if field == "deltas" and any(entries):
        return f"record the updates of {', '.join(entries)}"
    if field == "learner":
        return f"{_REMEDIES['algorithm']} (one of the kind {', '.join(entries)})"
    return _REMEDIES.get("known" if field == "pairs" else field)
