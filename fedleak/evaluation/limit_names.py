"""Names of a gate's limits: ``METRIC=LIMIT`` or ``QUESTION/METRIC=LIMIT``, read and checked before anything runs."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fedleak.core.errors import InputError, require
from fedleak.core.metric_table import METRICS, metric

if TYPE_CHECKING:
    from fedleak.core.attack import Attack

CHANGE, BEYOND_BASELINE = "change", "beyond-baseline"
RELATIVE: Mapping[str, str] = {
    CHANGE: "how much more the best attack of a question infers than in the reference",
    BEYOND_BASELINE: "how much more an attack infers than the best baseline of its question",
}
"""Names that a limit may have in the place of a metric: for the metrics that judge attacks, in their units."""
Asked = Callable[[str, str], bool]
"""Whether a limit applies to a family and to what it infers."""
_PAIR = re.compile("([^=]+)=([^,=]*)(?:,(?=.)|$)", re.DOTALL)


def read_gate(texts: Iterable[str]) -> dict[str, float]:
    """Limits from the command line: ``auc=0.6``, ``auc=0.6,f1=0.5`` or JSON.

    Raises:
        InputError: a text has another form, or a limit is not a finite number.
    """
    limits: dict[str, float] = {}
    for text in texts:
        try:
            if text.lstrip().startswith("{"):
                pairs = [(str(name), str(limit)) for name, limit in json.loads(text).items()]
            else:
                parts = list(_PAIR.finditer(text))
                pairs = [(part[1], part[2]) for part in parts]
                if not text or "".join(part[0] for part in parts) != text:
                    raise ValueError("no pairs")
            wrong = [limit for _, limit in pairs if "_" in limit]
            limits |= {name.strip(): float(limit) for name, limit in pairs}
        except (ValueError, TypeError, AttributeError, RecursionError):
            wrong = [text]
        require(not wrong, "--gate METRIC=NUMBER", text, "E.g. --gate auc=0.6 or --gate l1=0.3.")
    for name, limit in limits.items():
        require(math.isfinite(limit), f"a finite limit on {name}", limit, "Set a number.")
    return limits


def check_limits(limits: Mapping[str, float], attacks: Sequence[Attack], *, reference: bool = False) -> None:
    """Checks the names and values of limits; call it after loading the attacks, whose estimates may add metrics.

    Args:
        limits: limits by ``METRIC`` or ``QUESTION/METRIC``, where a question is a family of attacks, or what it infers
            in the words of a report; ``change`` and ``beyond-baseline`` may stand in the place of a metric.
        attacks: attacks of the audit.
        reference: whether there is a run to compare with.

    Raises:
        InputError: a question or a metric is unknown, a metric does not measure leakage, a limit is no value of it, or
            there is no reference for ``change``.
    """
    for name, limit in limits.items():
        question, metric_name = parts_of(name)
        asked = [one for one in attacks if not one.baseline and asks(question)(one.family, one.estimates.inferred)]
        require(asked or question is None, "QUESTION/METRIC=LIMIT", repr(name), _near_question(question or "", attacks))
        gated = [one.name for one in METRICS.values() if one.leak]
        known = gated if question is None else [m for one in asked for m in one.estimates.metric_names() if m in gated]
        if metric_name not in (*known, *RELATIVE):
            why = ", which measures no leakage" if metric_name in METRICS and metric_name not in gated else ""
            raise InputError(
                expected=f"a metric of leakage{f' of {question}' if question else ''}",
                found=f"{metric_name!r}{why}",
                way_out=_near_metric(metric_name, list(dict.fromkeys(known)), question),
            )
        if metric_name in RELATIVE:
            require(
                limit >= 0, f"a limit on {metric_name} of at least 0", f"{limit:g}", f"It is {RELATIVE[metric_name]}."
            )
        way_out = "Give the folder of an earlier run: --reference RUN."
        require(metric_name != CHANGE or reference, "a reference for a limit on change", "none", way_out)
        low, high = metric(metric_name).span or (-math.inf, math.inf)
        within = f"a limit on {metric_name} from {low:g} to {high:g}"
        require(low <= limit <= high, within, f"{limit:g}", "It could never be exceeded, or always; correct it.")


def _near_metric(name: str, known: Sequence[str], question: str | None) -> str:
    lower = {one.lower(): one for one in (*known, *RELATIVE)}
    found = difflib.get_close_matches(name.lower(), lower, n=2)
    if found:
        return f"Did you mean {' or '.join(lower[one] for one in found)}?"
    own = f"It has {', '.join(known)}." if question else "E.g. auc or l1: the tables of a report name their metrics."
    return f"{own} An attack of your own adds its metric: --also PACKAGE.CLASS."


def _near_question(name: str, attacks: Sequence[Attack]) -> str:
    """The families whose name is similar, or whose description has the most words in common; else all."""
    asks = {one.family: one.estimates.inferred for one in attacks if not one.baseline}
    near = difflib.get_close_matches(name.lower(), asks, n=1)
    words = [word[:4] for word in re.findall("[a-z]{4,}", name.lower())]
    common = {family: sum(f" {word}" in f" {text}" for word in words) for family, text in asks.items()}
    best = max(common.values(), default=0)
    near = near or [family for family, count in common.items() if count == best > 0][:2]
    if near:
        return f"Did you mean {' or '.join(f'{family} ({asks[family]})' for family in near)}?"
    return f"A question is a family of attacks: {', '.join(asks)}."


def parts_of(name: str) -> tuple[str | None, str]:
    """Question, None for all, and metric of a limit."""
    question, given, metric_name = name.rpartition("/")
    return (question.strip() if given else None), metric_name.strip()


def asks(question: str | None) -> Asked:
    """Whether a limit on a question, None for all, applies to a family and to what it infers in words."""
    return lambda family, inferred: question is None or question.lower() in (family.lower(), inferred.lower())
