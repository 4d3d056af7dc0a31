"""Limits on what attacks may infer, ``METRIC=BOUND`` or ``QUESTION/METRIC=BOUND``: read, and checked before a run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedleak.core.errors import InputError, require
from fedleak.core.metric import Metric
from fedleak.core.metric_table import METRICS, metric
from fedleak_recorder.nearest import did_you_mean, nearest

if TYPE_CHECKING:
    from fedleak.core.attack import Attack

FEWEST = 5
"""Smallest number of clients whose interval decides."""
MOST_UNSCORED = 0.1
"""Largest share of clients without a value of an audit that passes."""
CHANGE = "change"
BEYOND_BASELINE = "beyond-baseline"
RELATIVE: Mapping[str, str] = {
    CHANGE: "how much more the best attack of a question infers than in the reference",
    BEYOND_BASELINE: "how much more an attack infers than the best baseline of its question",
}
"""Names that a limit may have in the place of a metric: for the metrics that judge attacks, in their units."""
_PAIR = re.compile("([^=]+)=([^,=]*)(?:,(?=.)|$)", re.DOTALL)
"""A name, an equals sign and a bound, up to a comma before the next one or to the end."""


@dataclass(frozen=True)
class Limit:
    """Bound on a metric of attacks, of all questions or of one.

    Attributes:
        question: family of attacks, or what it infers in the words of a report; None for all questions.
        metric: name of a metric of leakage, or one of `RELATIVE`.
        bound: largest value allowed; smallest if the metric is lower for more leakage.

    Example:
        >>> limit = Limit.named("composition/l1", 0.25)
        >>> limit.question, limit.metric, limit.exceeded_by(0.2), limit.exceeded_by(0.3)
        ('composition', 'l1', True, False)
    """

    question: str | None
    metric: str
    bound: float

    @classmethod
    def named(cls, name: str, bound: float) -> Limit:
        """The limit of a name, ``METRIC`` or ``QUESTION/METRIC``."""
        question, slash, metric_name = name.rpartition("/")
        return cls(question.strip() if slash else None, metric_name.strip(), bound)

    @property
    def name(self) -> str:
        """Its name: the metric, after its question and a slash if it has one."""
        if self.question is None:
            return self.metric
        return f"{self.question}/{self.metric}"

    @property
    def entry(self) -> Metric:
        """The entry of its metric."""
        return metric(self.metric)

    @property
    def is_relative(self) -> bool:
        """Whether it is on a difference: from a reference, or from the best baseline."""
        return self.metric in RELATIVE

    @property
    def sign(self) -> int:
        """1 if more of the metric is more leakage, -1 if less is."""
        return self.entry.sign

    @property
    def signed_bound(self) -> float:
        """The bound times the sign: more is more leakage."""
        return self.sign * self.bound

    @property
    def signed_span(self) -> tuple[float, float]:
        """Least and largest value of the metric times the sign."""
        low, high = self.entry.span or (-math.inf, math.inf)
        if self.sign > 0:
            return (low, high)
        return (-high, -low)

    def exceeded_by(self, value: float) -> bool:
        """Whether a value of the metric is beyond the bound; no value, NaN, is not."""
        return self.sign * value > self.signed_bound

    def applies(self, family: str, inferred: str) -> bool:
        """Whether it is about a family of attacks that infers something, in words."""
        return self.question is None or self.question.lower() in (family.lower(), inferred.lower())

    def applies_to(self, attack: Attack) -> bool:
        """Whether it is about an attack; baselines are exempt."""
        return not attack.baseline and self.applies(attack.family, attack.estimates.inferred)

    def is_measured_by(self, attack: Attack) -> bool:
        """Whether an attack has its metric."""
        return self.metric in attack.estimates.metric_names()


def limits_of(bounds: Mapping[str, float]) -> list[Limit]:
    """Limits of bounds by name; of several bounds of one name the last."""
    limits = [Limit.named(name, bound) for name, bound in bounds.items()]
    return list({limit.name: limit for limit in limits}.values())


def read_gate(texts: Iterable[str]) -> list[Limit]:
    """Limits from the command line: ``auc=0.6``, ``auc=0.6,f1=0.5`` or JSON.

    Raises:
        InputError: a text has another form, or a limit is not a finite number.
    """
    bounds: dict[str, float] = {}
    for text in texts:
        try:
            pairs = _pairs(text)
            # Python reads 6_0 as 60; nobody means it.
            wrong = [bound for _, bound in pairs if "_" in bound]
            bounds |= {name.strip(): float(bound) for name, bound in pairs}
        except (ValueError, TypeError, AttributeError, RecursionError):
            wrong = [text]
        require(not wrong, "--gate METRIC=NUMBER", text, "E.g. --gate auc=0.6 or --gate l1=0.3.")
    for name, bound in bounds.items():
        require(math.isfinite(bound), f"a finite limit on {name}", bound, "Set a number.")
    return limits_of(bounds)


def _pairs(text: str) -> list[tuple[str, str]]:
    """Names and bounds of a text of the command line.

    Raises:
        ValueError, TypeError, AttributeError, RecursionError: it has another form.
    """
    if text.lstrip().startswith("{"):
        bounds = json.loads(text).items()
        return [(str(name), str(bound)) for name, bound in bounds]
    pairs = list(_PAIR.finditer(text))
    # The pairs have to be all of the text.
    matched = "".join(pair[0] for pair in pairs)
    if not text or matched != text:
        raise ValueError("no pairs")
    return [(pair[1], pair[2]) for pair in pairs]


def check_limits(limits: Iterable[Limit], attacks: Sequence[Attack], *, reference: bool = False) -> None:
    """Checks the names and bounds of limits; call it after loading the attacks, whose estimates may add metrics.

    Args:
        limits: the limits.
        attacks: attacks of the audit.
        reference: whether there is a run to compare with.

    Raises:
        InputError: a question or a metric is unknown, a metric does not measure leakage, a bound is no value of it, or
            there is no reference for ``change``.
    """
    for limit in limits:
        _check_names(limit, attacks)
        _check_bound(limit)
        way_out = "Give the folder of an earlier run: --reference RUN."
        require(limit.metric != CHANGE or reference, "a reference for a limit on change", "none", way_out)


def _check_names(limit: Limit, attacks: Sequence[Attack]) -> None:
    """Checks that attacks ask the question, and that the metric is one of leakage of theirs."""
    question = limit.question
    if question is None:
        metrics = [name for name, entry in METRICS.items() if entry.leak]
    else:
        attacks_on_question = [attack for attack in attacks if limit.applies_to(attack)]
        require(attacks_on_question, "QUESTION/METRIC=LIMIT", repr(limit.name), _near_question(question, attacks))
        of_question: dict[str, None] = {}
        for attack in attacks_on_question:
            of_question.update(dict.fromkeys(attack.estimates.metric_names()))
        metrics = [name for name in of_question if metric(name).leak]
    if limit.is_relative or limit.metric in metrics:
        return
    of_this_question = f" of {question}" if question else ""
    no_leak = ", which measures no leakage" if limit.metric in METRICS and not limit.entry.leak else ""
    raise InputError(
        expected=f"a metric of leakage{of_this_question}",
        found=f"{limit.metric!r}{no_leak}",
        way_out=_near_metric(limit.metric, metrics, question),
    )


def _check_bound(limit: Limit) -> None:
    """Checks that values on both sides of the bound are possible."""
    name, bound = limit.metric, limit.bound
    if limit.is_relative:
        require(bound >= 0, f"a limit on {name} of at least 0", f"{bound:g}", f"It is {RELATIVE[name]}.")
    low, high = limit.entry.span or (-math.inf, math.inf)
    within = f"a limit on {name} from {low:g} to {high:g}"
    require(low <= bound <= high, within, f"{bound:g}", "It could never be exceeded, or always; correct it.")


def _near_metric(name: str, metrics: Sequence[str], question: str | None) -> str:
    has = f"It has {', '.join(metrics)}." if question else "E.g. auc or l1: the tables of a report name their metrics."
    otherwise = f"{has} An attack of your own adds its metric: --also PACKAGE.CLASS."
    return did_you_mean(name, [*metrics, *RELATIVE], otherwise)


def _near_question(name: str, attacks: Sequence[Attack]) -> str:
    """The families whose name is similar, or whose description has the most words in common; else all."""
    inferred = {attack.family: attack.estimates.inferred for attack in attacks if not attack.baseline}
    near = nearest(name, inferred)[:1]
    if not near:
        # The starts of words, so that plurals are the same word.
        words = [word[:4] for word in re.findall("[a-z]{4,}", name.lower())]
        common = {}
        for family, text in inferred.items():
            common[family] = sum(f" {word}" in f" {text}" for word in words)
        most = max(common.values(), default=0)
        near = [family for family, count in common.items() if count == most > 0][:2]
    if near:
        suggestions = [f"{family} ({inferred[family]})" for family in near]
        return f"Did you mean {' or '.join(suggestions)}?"
    return f"A question is a family of attacks: {', '.join(inferred)}."
