"""Row of a check of releases on secure sums: how many participants add no noise."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedleak.attacks.declared_privacy.findings import Array
from fedleak.attacks.declared_privacy.message_tests import WHOLE, MessageTests
from fedleak.attacks.declared_privacy.missing_noise import MissingNoise, whole_numbers
from fedleak.attacks.declared_privacy.reported import Reported
from fedleak.attacks.declared_privacy.table_row import table_row
from fedleak.core.estimates import Detail


def participants_row(reported: Reported, tests: MessageTests, everyone: int) -> Iterator[Detail]:
    """One row on sums: participants that add no noise. None for messages of one client each."""
    total = tests.group.participants
    if total == 1:
        return
    name = WHOLE
    if len(tests.group.scales) == 1:
        name = next(iter(tests.group.scales))
    numbers = np.concatenate([messages for messages, _ in tests.conclusive.missing])
    missing = _of_all_rounds([missing for _, missing in tests.conclusive.missing])
    single, about = _messages_with_findings(reported, name)
    p = reported.findings.adjusted("noise scale", name)
    if not len(about):
        yield _row_without_finding(missing, name, total, everyone, p)
        return
    inside = np.isin(numbers, about)
    clients = len(reported.concerned(about))
    if not missing.alike[inside].all():
        text = "Could not be checked: some parameters lack more noise than others, so it is not that of participants."
        yield table_row("participants", name, "not checked", clients, text, p=p)
        return
    if len(single):
        # Of sums that are found one by one, the one that surely lacks the most.
        worst = np.flatnonzero(inside)[np.argmax(missing.low[inside])]
        count = float(missing.count[worst])
        least = float(missing.low[worst])
        most = float(missing.high[worst])
        which = f"In {len(single)} of {len(numbers)} sums"
    else:
        # Of sums that are found together only, their mean.
        count = float(missing.count[inside].mean())
        least = float(missing.low[inside].mean())
        most = float(missing.high[inside].mean())
        which = "On average over the sums of a round"
    fitting = whole_numbers(least, most)
    if fitting:
        several = f"{fitting[0]}"
        if len(fitting) > 1:
            several = f"{fitting[0]} to {fitting[-1]}"
        outcome = "found"
        text = f"{which}, the noise is as small as if {several} of {total} participants added none"
    else:
        outcome = "not checked"
        text = f"{which}, noise is missing, but not that of a whole number of participants: more add too little"
    text += f" (interval {least:.2f} to {most:.2f})."
    yield table_row(
        "participants", name, outcome, clients, text, measured=count, declared=0.0, low=least, high=most, p=p
    )


def _of_all_rounds(rounds: list[MissingNoise]) -> MissingNoise:
    return MissingNoise(
        count=np.concatenate([missing.count for missing in rounds]),
        low=np.concatenate([missing.low for missing in rounds]),
        high=np.concatenate([missing.high for missing in rounds]),
        alike=np.concatenate([missing.alike for missing in rounds]),
    )


def _messages_with_findings(reported: Reported, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sums that are findings one by one, and those that the row is about: the same, or all of findings together."""
    findings = [tested.messages for tested in reported.findings.found("noise scale", name)]
    none = np.zeros(0, np.int64)
    single = np.unique(np.concatenate([none, *(messages.ravel() for messages in findings if messages.shape[1] == 1)]))
    if len(single):
        return single, single
    return single, np.unique(np.concatenate([none, *(messages.ravel() for messages in findings)]))


def _row_without_finding(missing: MissingNoise, name: str, total: int, everyone: int, p: float) -> Detail:
    """All participants add noise, if not even one that adds none could be hidden in a sum."""
    most = _largest(missing.high)
    measured = _largest(missing.count)
    outcome = "passed"
    text = f"All {total} participants of a sum add their noise."
    if most >= 1:
        hidden = f"up to {most:.1f}"
        if most >= total:
            hidden = "any number"
        outcome = "not checked"
        text = (
            f"Could not be checked: {hidden} of {total} participants could add no noise. A smaller clip,"
            " more numbers, or numbers that no update changes would show it."
        )
    return table_row(
        "participants", name, outcome, everyone, text, declared=0.0, measured=measured, low=0.0, high=most, p=p
    )


def _largest(numbers: Array) -> float:
    """The largest of some numbers at least 0, without NaN; 0 of none."""
    return float(np.fmax.reduce(numbers, initial=0.0))
