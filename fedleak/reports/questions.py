"""Questions of a report, a line each: what leaks most, what is near the baseline, and what was not measured."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import pandas as pd

from fedleak.core.metric_table import judges, metric
from fedleak.evaluation.reasons import is_inapplicable, nearest_reason, why_inapplicable
from fedleak.evaluation.result_names import UNDER
from fedleak.evaluation.risk import worst_clients, worst_in_words
from fedleak.evaluation.scores import SETTING, describe, differing, number, rows_of, setting_of
from fedleak.reports.attack_descriptions import described
from fedleak.reports.headline import (
    Headline,
    Row,
    Status,
    as_recorded,
    best_baseline,
    bits,
    comparisons,
    headline,
    is_generated,
    most_bits,
    reach,
)
from fedleak.reports.metric_words import number_in_words, value_in_words
from fedleak.reports.run import ATTACKS, Run
from fedleak.reports.tables import DATA

RUN = SETTING + "run"
WORDS: Mapping[Status, str] = {
    "leak": "leaks",
    "undecided": "not decided",
    "near": "near the baseline",
    "measured": "measured",
    "unmeasured": "not measured",
    "inapplicable": "does not apply",
}
_ORDER: Sequence[Status] = get_args(Status)
_OUTCOMES = ("failed", "unchecked", "undecided", "ok")
"""Outcomes of the gate, the worst first."""


@dataclass(frozen=True)
class Bar:
    """Shares of the way from the baseline to certainty: the best attack, the ends of its interval, the worst tenth."""

    mean: float
    low: float
    high: float
    worst: float | None


@dataclass(frozen=True)
class Question:
    """A line of a report.

    Attributes:
        family: family of attacks that ask it.
        asks: what the server may infer.
        where: data set and run, where a report has several; empty for one.
        key: name of the question in the results; None if it was not measured.
        answer: what was found.
        generated: whether the data are generated.
        about_data: whether it is about the content of a client's data, and not about whose update it is.
        bar: the best attack on the way from the baseline to certainty; None where there is no such way.
        said: values of the best attack and the baseline, the worst tenth of the clients and bits.
        verdict: outcome of the gate's limits on it, the worst; empty for none.
        lacks: why it was not measured, or does not apply; empty if it was.
    """

    family: str
    asks: str
    where: str
    key: str | None
    answer: Headline
    generated: bool
    about_data: bool
    bar: Bar | None
    said: str
    verdict: str
    lacks: str

    @property
    def word(self) -> str:
        """The answer in one or two words."""
        return WORDS[self.answer.status]

    @property
    def place(self) -> tuple[bool, bool, int, bool, float]:
        """Place in the order: what was measured, on real data, leaks, about the content of data, and goes furthest."""
        status = self.answer.status
        gain = 0.0 if self.bar is None else self.bar.mean
        return self.key is None, self.generated, _ORDER.index(status), not self.about_data, -gain


def questions(
    results: pd.DataFrame,
    scores: pd.DataFrame | None = None,
    gate: Sequence[Mapping[str, Any]] = (),
) -> list[Question]:
    """The questions that results answer, in order (`Question.place`), for each data set and run.

    Results under defences that were tried on a recording do not count.

    Args:
        results: see `fedleak.evaluation.summary.summarise`.
        scores: scores of the clients, for the worst tenth; None if they are unknown.
        gate: verdicts of the gate.
    """
    results = as_recorded(results)
    attacks = results[results["role"].isin(ATTACKS) & results["mean"].notna()]
    places = [name for name in (DATA, RUN) if name in attacks]
    several = [name for name in places if attacks[name].map(repr).nunique() > 1]
    found = []
    for _, own in attacks.groupby(["question", "family", *places], sort=False, dropna=False):
        cell = results
        for name in ("question", *places):
            cell = cell[_same(cell[name], own[name].iloc[0])]
        cell = cell[~cell["role"].isin(ATTACKS) | _same(cell["family"], own["family"].iloc[0])]
        where = describe(setting_of({name: own[name].iloc[0] for name in several}))
        found.append(_measured(cell, own, where, scores, gate))
    return sorted(found, key=lambda one: one.place)


def _same(values: pd.Series, value: Any) -> pd.Series:
    """Whether each value is a given one, which may be missing."""
    return values.isna() if value is None or value != value else values == value


def _measured(
    cell: pd.DataFrame,
    own: pd.DataFrame,
    where: str,
    scores: pd.DataFrame | None,
    gate: Sequence[Mapping[str, Any]],
) -> Question:
    answer, family = headline(cell), own["family"].iloc[0]
    row = answer.row
    assert row is not None
    exposed = pd.Series(dtype=float) if scores is None or scores.empty else worst_clients(rows_of(scores, row))
    worst = float(exposed.mean()) if len(exposed) else None
    ends = [reach(row, row[name], cell) for name in ("mean", "low", "high")]
    bar = None
    if None not in ends:
        mean, low, high = (end for end in ends if end is not None)
        bar = Bar(mean, min(low, high), max(low, high), None if worst is None else reach(row, worst, cell))
    family = "" if family is None or family != family else str(family)
    return Question(
        family=family,
        asks=row["tells"] or _asks().get(family, "something about the client"),
        where=where,
        key=row["question"],
        answer=answer,
        generated=bool(is_generated(own).all()),
        about_data=_about_data().get(family, True),
        bar=bar,
        said="; ".join(_said(row, cell, answer.tried, exposed)),
        verdict=_verdict(gate, family, set(own["attack"]), set(own["metric"])),
        lacks="",
    )


def _said(row: Row, cell: pd.DataFrame, tried: int, exposed: "pd.Series[float]") -> list[str]:
    setting = describe(setting_of(row), differing(cell[cell["attack"].isin([row["attack"]])]))
    among = f", best of {tried} attacks" if tried > 1 else ""
    among += f", at {setting}" if setting else ""
    interval = "" if row["low"] == row["high"] else f" ({number(row['low'])} to {number(row['high'])})"
    name, baseline, least = row["metric"], best_baseline(row, cell), comparisons(row, cell)
    start, compared = None, "guessing"
    if least and judges(name, row["question"]):
        start = min(least) if metric(name).lower_is_better else max(least)
        if baseline is not None and baseline["mean"] == start:
            compared = f"baseline {baseline['attack']}"
    words = ""
    if metric(name).words:
        without = "" if start is None else f" ({compared}: {number_in_words(name, start)})"
        words = f" {value_in_words(name, row['mean'])}{without}"
    said = [f"{row['attack']}{words}: {name} {number(row['mean'])}{interval}, n = {row['n']}{among}"]
    if start is not None:
        said.append(f"{compared} {number(start)}")
    if len(exposed):
        said.append(f"{worst_in_words(exposed, int(row['n']))} {number(float(exposed.mean()))}")
    gained = most_bits(row, cell)
    if gained is not None:
        whose = "" if gained["attack"] == row["attack"] else f", {gained['attack']}"
        ends = f"({bits(gained['low'])} to {bits(gained['high'])}{whose})"
        said.append(f"the update adds {bits(gained['mean'])} bits {ends}")
    return said


def _verdict(gate: Sequence[Mapping[str, Any]], family: str, attacks: set[str], metrics: set[str]) -> str:
    """The worst outcome of the limits on a question; that of a limit on all if it holds or an attack on it decides."""
    found = []
    for one in gate:
        question, _, name = str(one.get("metric")).rpartition("/")
        outcome, decides = one.get("verdict"), str(one.get("attack") or "").partition(" (")[0] in attacks
        own = question == family or (not question and name in metrics and (decides or outcome == "ok"))
        if own and outcome in _OUTCOMES:
            found.append((_OUTCOMES.index(outcome), f"{outcome} ({name} limit {one.get('limit')})"))
    return min(found)[1] if found else ""


def not_measured(run: Run, measured: Sequence[Question]) -> tuple[list[Question], list[str]]:
    """Questions of this version that a run asked and did not measure, with the reason, and those that it did not ask.

    The reason is that of the attack of a family which lacks least. A question does not apply where none of them could
    be asked of the recorded system.
    """
    asks, families = _asks(), dict[str, str]()
    for one in described():
        families |= {one.name: one.family, f"{one.family}/{one.name}": one.family}
    reasons: dict[str, dict[str, str]] = defaultdict(dict)
    baselines = {name for one in described() if one.baseline for name in (one.name, f"{one.family}/{one.name}")}
    for label, reason in {**run.not_run, **run.unrelated}.items():
        name = label.removesuffix(UNDER)
        if name in families and name not in baselines:
            reasons[families[name]][label] = reason
    answered = {one.family for one in measured}
    missing = [family for family in asks if family not in answered]
    unmeasured = []
    for family in missing:
        if family not in reasons:
            continue
        reason = nearest_reason(reasons[family])
        inapplicable = is_inapplicable(reason)  # which is the last of all reasons
        unmeasured.append(
            Question(
                family=family,
                asks=asks[family],
                where="",
                key=None,
                answer=Headline("", status="inapplicable" if inapplicable else "unmeasured"),
                generated=False,
                about_data=_about_data()[family],
                bar=None,
                said="",
                verdict=_verdict(run.gate, family, set(), set()),
                lacks=why_inapplicable(reason),
            )
        )
    return sorted(unmeasured, key=lambda one: one.place), [family for family in missing if family not in reasons]


def _asks() -> dict[str, str]:
    """What the server may infer, by family: of its first attack."""
    found: dict[str, str] = {}
    for one in described():
        if not one.baseline:
            found.setdefault(one.family, one.inferred)
    return found


def _about_data() -> dict[str, bool]:
    """Whether the question of each family is about the content of a client's data."""
    found: dict[str, bool] = {}
    for one in described():
        found[one.family] = found.get(one.family, False) or one.about_data
    return found
