"""What the checks of a message gave, and the log's entry of the decision."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import fedleak_guard
from fedleak_guard.check import Measurement
from fedleak_guard.message import Message
from fedleak_guard.plain_message import shown
from fedleak_guard.policy import Action, Policy

_LONGEST_REASON = 500
"""Characters of a reason in the log."""


@dataclass
class CheckOutcomes:
    """What the checks of a message gave.

    Attributes:
        measured: by check, what it measured.
        not_made: by check, why it was not made.
        actions: by check with a finding, what the policy has it do.
        statistics: by check, further numbers for the log.
        reasons: why the message is refused; empty if it may leave.
    """

    measured: dict[str, Measurement] = field(default_factory=dict)
    not_made: dict[str, str] = field(default_factory=dict)
    actions: dict[str, Action] = field(default_factory=dict)
    statistics: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)


def decision_entry(
    message: Message,
    policy: Policy,
    outcome: CheckOutcomes,
    *,
    time: float,
    content_hash: str | None,
    noised: bool,
    precision: float,
) -> dict[str, Any]:
    """The log's entry of a decision.

    Args:
        message: the guard's copy of the message.
        policy: the site's policy.
        outcome: what the checks gave, and why the message is refused.
        time: of the decision, in seconds since 1970.
        content_hash: hash of the tensors that leave; None if none do.
        noised: whether the guard adds noise to what leaves.
        precision: the message's privacy loss, see `precision_of`.
    """
    # JSON has no NaN and no infinity, in whose place the log has null.
    checks: dict[str, dict[str, Any]] = {}
    for name, measurement in outcome.measured.items():
        checks[name] = {
            "value": _plain(measurement.value),
            "limit": _plain(measurement.limit),
            "found": measurement.found,
        }
        if name in outcome.actions:
            checks[name]["action"] = outcome.actions[name]
    statistics: dict[str, dict[str, Any]] = {}
    for name, values in outcome.statistics.items():
        statistics[name] = {}
        for key, value in values.items():
            statistics[name][key] = value if isinstance(value, str) else _plain(value)
    return {
        "format": 1,
        "version": fedleak_guard.__version__,
        "time": time,
        "date": datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds"),
        "event": "refused" if outcome.reasons else "released",
        "job": message.job,
        "round": message.round,
        "policy": policy.source_hash,
        "tensors": len(message.sent or {}),
        "metrics": len(message.metrics),
        "content": content_hash,
        # What is refused got no noise, whatever the findings asked for.
        "noised": bool(noised and not outcome.reasons),
        "precision": _plain(precision),
        "checks": checks,
        "not_made": outcome.not_made,
        "statistics": statistics,
        "reasons": [shown(reason, _LONGEST_REASON) for reason in outcome.reasons],
    }


def _plain(value: float | None) -> float | None:
    """A number as JSON can hold it; None of NaN and infinity."""
    if value is None or not math.isfinite(value):
        return None
    return float(value)
