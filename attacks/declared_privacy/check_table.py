"""Table of a check of releases: a row with a sentence for each check."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fedleak.attacks.declared_privacy.findings import Findings
from fedleak.attacks.declared_privacy.message_tests import WHOLE, MessageTests
from fedleak.attacks.declared_privacy.participants_row import participants_row
from fedleak.attacks.declared_privacy.reported import Reported
from fedleak.attacks.declared_privacy.table_row import table_row
from fedleak.core.estimates import Detail

_FOUND = {
    "noise scale": "The noise is smaller than declared.",
    "law": "The noise is not normally distributed.",
    "resolution": "The noise is rounded: it lies on a grid, and epsilon holds for continuous noise only.",
    "numbers without noise": "Some numbers are exactly zero: they have no noise.",
    "reuse": "The same noise is in several messages, parameters or rows, so that their difference has none.",
    "clip direction": "The messages point along the global model farther than a clipped update can: weights are clipped"
    " or sent instead of the update.",
    "order": "The norm of messages equals the clip: they are clipped after the noise, which shrinks it.",
}
_ALIKE = (
    "Messages are more alike than independent noise and clipped updates: some noise is used twice, or the updates are"
    " not clipped."
)
_HIDDEN = 1.05
"""Ratio above which the update hides the noise."""
_HARDLY = 0.1
"""Measured over declared scale below which a parameter has hardly any noise."""
_SAME = 0.3
"""Cosine from which messages have the same noise throughout."""
_PASSED = {
    "law": "The noise is normally distributed.",
    "resolution": "The noise is as fine as float32.",
    "numbers without noise": "All numbers have noise.",
    "reuse": "No noise is used twice.",
    "clip direction": "The messages do not point along the global model.",
    "order": "The noise is added after the clip.",
}


def rows_of(reported: Reported) -> list[Detail]:
    """Rows of the table: a check, what it was made on, the outcome, numbers and a sentence."""
    clients_of_findings = reported.found()
    everyone = len(np.unique(reported.people))
    rows: list[Detail] = []
    for names, tests in reported.tests.items():
        rows += _scales(reported, tests, clients_of_findings, everyone)
        rows += participants_row(reported, tests, everyone)
        rows += _further_checks(reported, tests, names, clients_of_findings, everyone)
    for name in reported.bare:
        text = "The parameter is outside every release: it is sent without noise."
        rows.append(table_row("coverage", name, "found", clients_of_findings["coverage", name], text))
    if not reported.bare:
        text = "Every parameter that is sent is in a release."
        rows.append(table_row("coverage", WHOLE, "passed", everyone, text))
    for name in reported.misread:
        text = "Could not be checked: a clip is declared after the noise."
        rows.append(table_row("noise scale", name, "not checked", everyone, text))
    for release in reported.miscalibrated:
        text = (
            f"The noise hides less than the clip allows: clip {release.clip:g} and standard deviation"
            f" {release.noise_scale:.4g} do not give the declared epsilon {release.epsilon:g} at delta"
            f" {release.delta:g}."
        )
        rows.append(table_row("sensitivity", WHOLE, "found", everyone, text, declared=release.epsilon))
    return rows


def _scales(
    reported: Reported, tests: MessageTests, clients_of_findings: Mapping[tuple[str, str], int], everyone: int
) -> Iterator[Detail]:
    """One row per parameter with the measured scale of its noise."""
    conclusive = tests.conclusive
    for name, intervals in conclusive.scale.items():
        if name == WHOLE and len(conclusive.scale) == 2:  # the one parameter has the same row
            continue
        declared = tests.group.scales.get(name, min(tests.group.scales.values()))
        # Mean over the parts of the messages whose noise could be measured.
        ratios = np.array(intervals)
        measurable = ratios[~np.isnan(ratios[:, 0])]
        measured, low, high = (math.nan,) * 3
        if len(measurable):
            measured, low, high = measurable.mean(0) * declared
        p = reported.findings.adjusted("noise scale", name)
        numbers = {"measured": measured, "declared": declared, "low": low, "high": high, "p": p}
        is_hidden = conclusive.free and low > _HIDDEN * declared
        clients = clients_of_findings.get(("noise scale", name), 0)
        if clients:
            yield _too_little_noise_row(reported, name, clients, numbers)
        elif ("energy", name) in clients_of_findings:
            yield _energy_row(reported, name, clients_of_findings["energy", name], numbers)
        elif len(measurable) < len(ratios) or is_hidden:
            text = "Could not be checked: the clip allows updates that hide the noise, and no part of them is quiet."
            yield table_row("noise scale", name, "not checked", everyone, text, **numbers)
        else:
            condition = ", whatever the update is."
            if conclusive.free:
                condition = ", if the parts without visible update have none."
            text = f"The noise has its declared scale{condition}"
            yield table_row("noise scale", name, "passed", everyone, text, **numbers)


def _too_little_noise_row(reported: Reported, name: str, clients: int, numbers: Mapping[str, float]) -> Detail:
    """Row of noise that is smaller than declared, with the smallest scale that is a finding."""
    measured = np.concatenate([tested.measured for tested in reported.findings.found("noise scale", name)])
    share = float(np.fmin.reduce(measured))
    if math.isnan(share):
        text = "The noise does not have its scale; how much it has is not known."
    elif share < _HARDLY:
        text = "The parameter has hardly any noise."
    else:
        text = f"The noise has {share:.1%} of its scale."
    return table_row(
        "noise scale", name, "found", clients, text, **{**numbers, "measured": share * numbers["declared"]}
    )


def _energy_row(reported: Reported, name: str, clients: int, numbers: Mapping[str, float]) -> Detail:
    """Row of numbers that are larger than noise and a clipped update."""
    measured = np.concatenate([tested.measured for tested in reported.findings.found("energy", name)])
    p = reported.findings.adjusted("energy", name)
    if np.isnan(measured).any():
        text = "The update is larger than the clip: it is not clipped, not jointly, or not the update is."
        return table_row("clip", name, "found", clients, text, **{**numbers, "p": p})
    text = "The noise is larger than declared, by all numbers alike."
    larger = {**numbers, "measured": numbers["declared"] * measured.max(), "p": p}
    return table_row("noise scale", name, "found", clients, text, **larger)


def _further_checks(
    reported: Reported,
    tests: MessageTests,
    names: Sequence[str],
    clients_of_findings: Mapping[tuple[str, str], int],
    everyone: int,
) -> Iterator[Detail]:
    """Rows of the checks other than that of the scale."""
    findings = reported.findings
    conclusive = {
        "law": tests.conclusive.law,
        "resolution": tests.conclusive.resolution,
        "reuse": tests.conclusive.reuse,
    }
    for check, text_if_passed in _PASSED.items():
        parameters = [name for name in (*names, WHOLE) if (check, name) in clients_of_findings]
        for name in parameters:
            p = findings.adjusted(check, name)
            measured = _largest(findings, check, name)
            text = _FOUND[check]
            if check == "reuse" and measured < _SAME:
                text = _ALIKE
            clients = clients_of_findings[check, name]
            yield table_row(check, name, "found", clients, text, p=p, measured=measured)
        if parameters:
            continue
        # Some checks say whether a fault would have been seen; others were made if they have a p-value.
        was_made = check in conclusive or bool(findings.parameters(check))
        if was_made and conclusive.get(check, True):
            p_values = [findings.adjusted(check, name) for name in (*names, WHOLE)]
            p = min((p for p in p_values if not math.isnan(p)), default=math.nan)
            yield table_row(check, WHOLE, "passed", everyone, text_if_passed, p=p)
        else:
            text = "Could not be checked: too few numbers, or an update that may hide it."
            yield table_row(check, WHOLE, "not checked", everyone, text)
    if math.isinf(tests.group.clip):
        yield table_row("clip", WHOLE, "not checked", everyone, "No clip is declared: there is no epsilon.")
    elif not any(("energy", name) in clients_of_findings for name in (*names, WHOLE)):
        yield _clip_row(findings, tests, everyone)


def _clip_row(findings: Findings, tests: MessageTests, everyone: int) -> Detail:
    """Row of updates that are within the clip, and how large one would have to be to be found."""
    smallest_of_one, smallest_of_all = tests.conclusive.clip
    outcome = "not checked"
    if smallest_of_one < 2:  # clips
        outcome = "passed"
    total = tests.group.participants
    what, clip, who = "update", "the clip", "clients"
    if total > 1:
        what, clip, who = "sum", f"{total} clips", "sums"
    text = (
        f"No {what} is above {clip}, but the noise of a message hides norms up to {smallest_of_one:.3g} times {clip},"
        f" and up to {smallest_of_all:.3g} times if all {who} of a round have them."
    )
    return table_row("clip", WHOLE, outcome, everyone, text, p=findings.adjusted("energy", WHOLE))


def _largest(findings: Findings, check: str, name: str) -> float:
    """The largest measured value of the findings of a check; NaN without any."""
    measured = np.concatenate([tested.measured for tested in findings.found(check, name)])
    if np.isnan(measured).all():
        return math.nan
    return float(np.nanmax(measured))
