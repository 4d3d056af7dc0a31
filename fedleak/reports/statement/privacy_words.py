"""Differential privacy of a statement in words: the declaration, what was sent, the bound, and several rounds."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedleak.core.privacy_ledger import LEDGER_CHECKS, SUBSAMPLING
from fedleak.reports.statement.numbers import Cell, shown
from fedleak.reports.statement.privacy_content import Bound, Sent
from fedleak.reports.statement.system_file import Promise

_ASSUMES: Mapping[str, str] = {
    "epsilon-gdp": "if the canaries' scores are Gaussian, as its test says",
    "epsilon-cp": "by the counts of right guesses",
    "epsilon-one-run": "which assumes nothing but fair coins",
    "epsilon-one-run-fdp": "for the trade-off of Gaussian noise",
}
"""What each bound relies on, in words."""


def privacy_sentence(
    promise: Promise | None,
    recorded: Sent | None,
    sent: Sent | None,
    bounds: Sequence[Bound],
    releases: Sequence[Mapping[str, Any]],
) -> str:
    """Declared, recorded, sent, and the lower bound, in this order."""
    declared = "none" if promise is None else promised(promise)
    parts = [f"the controller declares {declared}"]
    if not releases:
        parts.append("the recording declares no clipping and no noise")
    if recorded is not None:
        parts.append(f"the recording declares {of_worst(recorded, promise)}")
    if sent is not None:
        parts.append(f"as sent, it is {of_worst(sent, promise)}")
    elif releases or promise is not None:
        parts.append("whether the noise was really sent was not looked at")
    if bounds:
        parts.append(_about_bound(bounds[0], len(bounds) - 1))
    return f"Differential privacy: {'; '.join(parts)}."


def of_worst(sent: Sent, promise: Promise | None) -> str:
    """Epsilon of the worst client with its delta and messages, and in the terms of the declaration."""
    text = f"epsilon {shown(sent.worst)} for the worst client"
    if sent.delta is not None:
        text += f", with delta {shown(sent.delta)} over {sent.messages} of its messages"
    # The same epsilon at the delta and rounds of the declaration, where they are others.
    if sent.at_declared is not None and sent.at_declared != sent.worst:
        return f"{text}, which is {shown(sent.at_declared)} at the delta and rounds of the declaration"
    if promise is None or sent.at_declared is not None:
        return text
    if promise.unit != "client":
        return f"{text} (per client, so it does not compare with the declaration)"
    return f"{text} (it does not compare with the declaration)"


def _about_bound(bound: Bound, checks: int) -> str:
    """The bound that decides, what it assumes, and whether it refutes the declaration."""
    text = f"the lower bound from {bound.n} canaries is {shown(bound.value)}"
    if bound.delta is not None:
        text += f" with delta {shown(bound.delta)} over {bound.rounds} rounds"
    text += f" ({_ASSUMES[bound.metric]})"
    if bound.refutes is None:
        text += f", which does not compare with the declaration: {bound.note}"
    else:
        if bound.at_declared != bound.value:
            text += f", {shown(bound.at_declared)} at the delta and rounds of the declaration"
        verdict = "refutes" if bound.refutes else "does not refute"
        text += f", which {verdict} the declaration"
    if checks:
        text += f"; {checks} other bounds, which check it, decide nothing"
    return text


def promised(promise: Promise) -> str:
    """A declaration of privacy, without its controller."""
    return f"epsilon {shown(promise.value)} with delta {shown(promise.delta)}, per {promise.unit}, over {span(promise)}"


def ledger_in_words(findings: Sequence[Mapping[str, Cell]]) -> str:
    """Rounds and epsilon of the worst and of the median client; empty if several rounds were not looked at."""
    by_check = {row["check"]: row for row in findings}
    spent = []
    for who, check in LEDGER_CHECKS.items():
        if check in by_check:
            row = by_check[check]
            # The table has no infinite numbers: an empty one is that of noise without a clip.
            epsilon = "infinite" if row["declared"] is None else shown(float(row["declared"]))
            rounds = shown(float(row["messages"] or 0))
            spent.append(f"{who}: epsilon {epsilon} at the declared noise, over {rounds} rounds")
    if not spent:
        return ""
    return f"{'; '.join(spent)}. {SUBSAMPLING}"


def span(promise: Promise | None) -> str:
    """The rounds that a declaration covers."""
    if promise is None:
        return "none is declared"
    if promise.rounds is None:
        return "the whole training"
    if promise.rounds == 1:
        return "one round"
    return f"{promise.rounds} rounds"
