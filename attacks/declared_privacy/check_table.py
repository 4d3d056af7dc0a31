"""Outcome of a check of releases: what concerns each message, and a table with a sentence per check."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedleak.attacks.declared_privacy.findings import Array, Findings
from fedleak.attacks.declared_privacy.message_tests import WHOLE, MessageTests
from fedleak.attacks.declared_privacy.missing_noise import whole_numbers
from fedleak.core.estimates import Detail
from fedleak.core.view import Release

_BREAKING = ("reuse", "clip direction", "order")
"""Checks of which a finding leaves no guarantee at all."""
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
_MISSING = 0.5
"""Scale of a parameter's noise, over that of all, below which it counts as sent without noise."""
_ALIKE = (
    "Messages are more alike than independent noise and clipped updates: some noise is used twice, or the updates are"
    " not clipped."
)
_HIDDEN = 1.05
"""Ratio above which the update hides the noise."""
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


@dataclass(frozen=True)
class Reported:
    """All that was found.

    Attributes:
        findings: p-values of all tests.
        tests: the tests by the parameters of a group.
        bare: by parameter outside every release, the messages in which it is not zero.
        misread: parameters that are clipped after the noise, whose noise cannot be tested.
        miscalibrated: releases of which one send loses more than their epsilon.
        messages: number of messages, M.
        people: ``(K,)`` pseudonyms of the clients of each message; a sum has several.
        places: ``(K,)`` number of that message.
    """

    findings: Findings
    tests: Mapping[tuple[str, ...], MessageTests]
    bare: Mapping[str, Sequence[int]]
    misread: Sequence[str]
    miscalibrated: Sequence[Release]
    messages: int
    people: NDArray[np.int64]
    places: NDArray[np.int64]

    def concerned(self, messages: NDArray[np.int64]) -> NDArray[np.int64]:
        """Pseudonyms, each once, of the clients of some messages."""
        return np.unique(self.people[np.isin(self.places, messages)])

    def factors(self) -> Array:
        """``(M,)`` smallest measured over declared scale that is a finding; 1 where the declared scale stands."""
        factor = np.ones(self.messages)
        for parameter in self.findings.parameters("noise scale"):
            for one in self.findings.found("noise scale", parameter):
                ratio = np.clip(np.nan_to_num(one.measured, nan=0.0), 0, 1)
                np.minimum.at(factor, one.messages, np.broadcast_to(ratio[:, None], one.messages.shape))
        return factor

    def broken(self) -> NDArray[np.bool_]:
        """``(M,)`` messages without any guarantee: a bare parameter, reused noise, no clip, or noise before it."""
        broken = np.zeros(self.messages, dtype=bool)
        for messages in self.bare.values():
            broken[list(messages)] = True
        for check in (*_BREAKING, "numbers without noise"):
            for parameter in self.findings.parameters(check):
                for one in self.findings.found(check, parameter):
                    broken[one.messages] = True
        for parameter in self.findings.parameters("energy"):
            for one in self.findings.found("energy", parameter):
                broken[one.messages[np.isnan(one.measured)]] = True
        ratios = self.ratios()
        for parameter in {*self.findings.parameters("noise scale")} - {WHOLE}:
            for one in self.findings.found("noise scale", parameter):
                # What is measured in a parameter without noise is its update.
                of_all = np.nanmin(np.append(ratios[one.messages].ravel(), 1.0))
                broken[one.messages[one.measured < _MISSING * of_all]] = True
        return broken

    def ratios(self) -> Array:
        """``(M,)`` measured over declared scale of the noise of each message; NaN where unknown."""
        found = np.full(self.messages, np.nan)
        for tests in self.tests.values():
            for numbers, ratio in tests.conclusive.ratios:
                found[numbers] = np.fmin(found[numbers], ratio)
        return found

    def counts(self, clients: NDArray[np.int64]) -> list[int]:
        """Number of findings that concern each client."""
        concerned = [set(self.concerned(messages).tolist()) for _, _, messages in self._all()]
        return [sum(int(client) in own for own in concerned) for client in clients]

    def _all(self) -> Iterator[tuple[str, str, NDArray[np.int64]]]:
        """Check, parameter and messages of every finding."""
        everyone = np.arange(self.messages)
        for check in self.findings.checks:
            for parameter in dict.fromkeys(self.findings.parameters(check)):
                messages = [one.messages.flatten() for one in self.findings.found(check, parameter)]
                if messages:
                    yield check, parameter, np.unique(np.concatenate(messages))
        for parameter, own in self.bare.items():
            yield "coverage", parameter, np.asarray(own)
        for _ in self.miscalibrated:
            yield "sensitivity", WHOLE, everyone

    def found(self) -> dict[tuple[str, str], int]:
        """Number of clients by check and parameter of every finding."""
        return {(check, name): len(self.concerned(own)) for check, name, own in self._all()}


def rows_of(reported: Reported) -> list[Detail]:
    """Rows of the table: a check, what it was made on, the outcome, numbers and a sentence."""
    found, everyone = reported.found(), len(np.unique(reported.people))
    rows: list[Detail] = []
    for names, tests in reported.tests.items():
        rows += _scales(reported, tests, found, everyone)
        rows += _participants(reported, tests, everyone)
        rows += _others(reported, tests, names, found, everyone)
    for name in reported.bare:
        text = "The parameter is outside every release: it is sent without noise."
        rows.append(_row("coverage", name, "found", found["coverage", name], text))
    if not reported.bare:
        rows.append(_row("coverage", WHOLE, "passed", everyone, "Every parameter that is sent is in a release."))
    for name in reported.misread:
        text = "Could not be checked: a clip is declared after the noise."
        rows.append(_row("noise scale", name, "not checked", everyone, text))
    for release in reported.miscalibrated:
        text = (
            f"The noise hides less than the clip allows: clip {release.clip:g} and standard deviation"
            f" {release.noise_scale:.4g} do not give the declared epsilon {release.epsilon:g} at delta"
            f" {release.delta:g}."
        )
        rows.append(_row("sensitivity", WHOLE, "found", everyone, text, declared=release.epsilon))
    return rows


def _row(check: str, parameter: str, outcome: str, clients: int, text: str, **numbers: float | None) -> Detail:
    known = {name: float(value) for name, value in numbers.items() if value is not None and math.isfinite(value)}
    columns = dict.fromkeys(("measured", "declared", "low", "high", "p")) | known
    return {"check": check, "parameter": parameter, "outcome": outcome, "clients": clients, **columns, "text": text}


def _scales(
    reported: Reported, tests: MessageTests, found: Mapping[tuple[str, str], int], everyone: int
) -> Iterator[Detail]:
    """One row per parameter with the measured scale of its noise."""
    findings, seen = reported.findings, tests.conclusive
    for name, entries in seen.scale.items():
        if name == WHOLE and len(seen.scale) == 2:
            continue
        declared = tests.group.scales.get(name, min(tests.group.scales.values()))
        ratios = np.array(entries)
        known = ratios[~np.isnan(ratios[:, 0])]
        measured, low, high = known.mean(0) * declared if len(known) else (math.nan,) * 3
        p = findings.adjusted("noise scale", name)
        numbers = {"measured": measured, "declared": declared, "low": low, "high": high, "p": p}
        clients = found.get(("noise scale", name), 0)
        if clients:
            own = np.concatenate([one.measured for one in findings.found("noise scale", name)])
            share = float(np.fmin.reduce(own))
            numbers["measured"] = share * declared
            text = "The parameter has hardly any noise." if share < 0.1 else f"The noise has {share:.1%} of its scale."
            text = "The noise does not have its scale; how much it has is not known." if math.isnan(share) else text
            yield _row("noise scale", name, "found", clients, text, **numbers)
        elif ("energy", name) in found:
            yield _energy_row(reported, name, found["energy", name], numbers)
        elif len(known) < len(ratios) or (seen.free and low > _HIDDEN * declared):
            text = "Could not be checked: the clip allows updates that hide the noise, and no part of them is quiet."
            yield _row("noise scale", name, "not checked", everyone, text, **numbers)
        else:
            text = "The noise has its declared scale" + (
                ", if the parts without visible update have none." if seen.free else ", whatever the update is."
            )
            yield _row("noise scale", name, "passed", everyone, text, **numbers)


def _participants(reported: Reported, tests: MessageTests, everyone: int) -> Iterator[Detail]:
    """One row on sums: participants that add no noise."""
    total, seen = tests.group.participants, tests.conclusive
    if total == 1:
        return
    name = WHOLE if len(tests.group.scales) > 1 else next(iter(tests.group.scales))
    numbers = np.concatenate([messages for messages, _ in seen.missing])
    count, low, high, alike = (
        np.concatenate([getattr(one, part) for _, one in seen.missing]) for part in ("count", "low", "high", "alike")
    )
    found = [one.messages for one in reported.findings.found("noise scale", name)]
    single = np.unique(np.concatenate([one.ravel() for one in found if one.shape[1] == 1] or [np.zeros(0, np.int64)]))
    about = single if len(single) else np.unique(np.concatenate([one.ravel() for one in found] or [single]))
    p = reported.findings.adjusted("noise scale", name)
    if not len(about):
        most = float(np.fmax.reduce(high, initial=0.0))
        worst = {"measured": float(np.fmax.reduce(count, initial=0.0)), "low": 0.0, "high": most, "p": p}
        if most < 1:
            text = f"All {total} participants of a sum add their noise."
            yield _row("participants", name, "passed", everyone, text, declared=0.0, **worst)
            return
        text = (
            f"Could not be checked: {_hidden(most, total)} of {total} participants could add no noise. A smaller clip,"
            " more numbers, or numbers that no update changes would show it."
        )
        yield _row("participants", name, "not checked", everyone, text, declared=0.0, **worst)
        return
    inside = np.isin(numbers, about)
    clients = len(reported.concerned(about))
    if not alike[inside].all():
        text = "Could not be checked: some parameters lack more noise than others, so it is not that of participants."
        yield _row("participants", name, "not checked", clients, text, p=p)
        return
    # Of sums that are found one by one, the one that surely lacks the most; of others, their mean.
    place = np.flatnonzero(inside)[np.argmax(low[inside])]
    each, least, most = (
        float(part[place]) if len(single) else float(part[inside].mean()) for part in (count, low, high)
    )
    which = f"In {len(single)} of {len(numbers)} sums" if len(single) else "On average over the sums of a round"
    fit = whole_numbers(least, most)
    if fit:
        several = f"{fit[0]} to {fit[-1]}" if len(fit) > 1 else f"{fit[0]}"
        text = f"{which}, the noise is as small as if {several} of {total} participants added none"
    else:
        text = f"{which}, noise is missing, but not that of a whole number of participants: more add too little"
    text += f" (interval {least:.2f} to {most:.2f})."
    outcome = "found" if fit else "not checked"
    yield _row("participants", name, outcome, clients, text, measured=each, declared=0.0, low=least, high=most, p=p)


def _hidden(most: float, total: int) -> str:
    return "any number" if most >= total else f"up to {most:.1f}"


def _energy_row(reported: Reported, name: str, clients: int, numbers: Mapping[str, float]) -> Detail:
    """Row of numbers that are larger than noise and a clipped update."""
    own = np.concatenate([one.measured for one in reported.findings.found("energy", name)])
    p = reported.findings.adjusted("energy", name)
    if np.isnan(own).any():
        text = "The update is larger than the clip: it is not clipped, not jointly, or not the update is."
        return _row("clip", name, "found", clients, text, **{**numbers, "p": p})
    text = "The noise is larger than declared, by all numbers alike."
    larger = {**numbers, "measured": numbers["declared"] * own.max(), "p": p}
    return _row("noise scale", name, "found", clients, text, **larger)


def _others(
    reported: Reported, tests: MessageTests, names: Sequence[str], found: Mapping[tuple[str, str], int], everyone: int
) -> Iterator[Detail]:
    """Rows of the checks other than that of the scale."""
    findings, seen = reported.findings, tests.conclusive
    conclusive = {"law": seen.law, "resolution": seen.resolution, "reuse": seen.reuse}
    for check, passed in _PASSED.items():
        own = [name for name in (*names, WHOLE) if (check, name) in found]
        for name in own:
            p, measured = findings.adjusted(check, name), _largest(findings, check, name)
            text = _ALIKE if check == "reuse" and measured < _SAME else _FOUND[check]
            yield _row(check, name, "found", found[check, name], text, p=p, measured=measured)
        if not own and conclusive.get(check, True) and (check in conclusive or findings.parameters(check)):
            p = min((p for name in (*names, WHOLE) if (p := findings.adjusted(check, name)) == p), default=math.nan)
            yield _row(check, WHOLE, "passed", everyone, passed, p=p)
        elif not own:
            text = "Could not be checked: too few numbers, or an update that may hide it."
            yield _row(check, WHOLE, "not checked", everyone, text)
    if math.isinf(tests.group.clip):
        yield _row("clip", WHOLE, "not checked", everyone, "No clip is declared: there is no epsilon.")
    elif not any(("energy", name) in found for name in (*names, WHOLE)):
        one, all_of_them = seen.clip
        outcome, total = "passed" if one < 2 else "not checked", tests.group.participants
        what, clip, who = "update", "the clip", "clients"
        if total > 1:
            what, clip, who = "sum", f"{total} clips", "sums"
        text = (
            f"No {what} is above {clip}, but the noise of a message hides norms up to {one:.3g} times {clip}, and"
            f" up to {all_of_them:.3g} times if all {who} of a round have them."
        )
        yield _row("clip", WHOLE, outcome, everyone, text, p=findings.adjusted("energy", WHOLE))


def _largest(findings: Findings, check: str, name: str) -> float:
    values = np.concatenate([one.measured for one in findings.found(check, name)])
    return float(np.nanmax(values)) if (~np.isnan(values)).any() else math.nan
