"""The pyramid of NIST SP 800-226 in a statement: what a claim of differential privacy depends on."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fedleak.reports.statement.numbers import shown
from fedleak.reports.statement.privacy_content import Bound, Level, Sent
from fedleak.reports.statement.privacy_words import of_worst, promised, span
from fedleak.reports.statement.system_file import System

Status = Literal["checked", "declared", "not looked at"]


def pyramid(
    system: System,
    sent: Sent | None,
    bounds: Sequence[Bound],
    releases: Sequence[Mapping[str, Any]],
    ledger: str,
) -> list[Level]:
    """A line for each item, from the top."""
    promise = system.epsilon
    checked: Status = "checked"
    declared: Status = "declared"
    unseen: Status = "not looked at"
    # Top: epsilon, delta and the unit. What the release check found counts more than what is declared.
    epsilon = Level(level="top", item="epsilon and delta", status=unseen, note="none is declared")
    if sent is not None:
        note = f"as sent: {of_worst(sent, promise)}; n = {sent.n}"
        epsilon = Level(level="top", item=epsilon.item, status=checked, note=note)
    elif promise is not None:
        epsilon = Level(level="top", item=epsilon.item, status=declared, note=promised(promise))
    elif releases:
        note = "none is declared, though the recording declares noise"
        epsilon = Level(level="top", item=epsilon.item, status=unseen, note=note)
    unit = Level(level="top", item="unit of privacy", status=unseen, note="none is declared")
    if promise is not None:
        unit = Level(level="top", item=unit.item, status=declared, note=promise.unit)
    # Middle: the mechanism as it was implemented, attacked and composed, and its surroundings.
    mechanism = Level(level="middle", item="correctness of the mechanism", status=unseen, note="")
    if sent is not None:
        mechanism = Level(level="middle", item=mechanism.item, status=checked, note="by the release check")
    attacked = Level(level="middle", item="attacks on the mechanism", status=unseen, note="no canaries")
    if bounds:
        note = ", ".join(f"{bound.metric} {shown(bound.value)} (n = {bound.n}, {bound.role})" for bound in bounds)
        attacked = Level(level="middle", item=attacked.item, status=checked, note=note)
    composition = Level(level="middle", item="composition over rounds", status=unit.status, note=span(promise))
    if ledger:
        composition = Level(level="middle", item=composition.item, status=checked, note=ledger)
    readers = f"who can read single updates: {', '.join(system.readers)}"
    side_channels = "side channels, e.g. sizes and times of messages, logs"
    return [
        epsilon,
        unit,
        mechanism,
        attacked,
        composition,
        Level(level="middle", item="trust model", status=declared, note=readers),
        Level(level="middle", item="utility and bias", status=unseen, note=""),
        Level(level="middle", item=side_channels, status=unseen, note=""),
        # Bottom: what holds without any mechanism.
        Level(level="bottom", item="security and retention", status=declared, note=system.retention),
        Level(level="bottom", item="exposure by collecting data", status=declared, note=system.purpose),
    ]
