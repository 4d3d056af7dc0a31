"""Answers: for each question the best attack, what it is compared with, how far it goes, and whether that is a leak.

The rules for all of these stand here and nowhere else; docs/audit/reports.md ("How an answer is made") has them with
their formulas. Every page, figure, gate, statement and export reads a table of `Answer` and defines none of it again.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import pandas as pd

from fedleak.core.metric_table import judges, metric
from fedleak.evaluation.added_bits import AddedBits, added_bits
from fedleak.evaluation.as_recorded import as_recorded
from fedleak.evaluation.attack_descriptions import inferred_by_family, is_about_data
from fedleak.evaluation.comparisons import LEVEL, NEAR, Cells, Comparison, Row, known, share_of_the_way
from fedleak.evaluation.limits import FEWEST
from fedleak.evaluation.result_names import ATTACKS, DATA, RUN, SETTING, setting_of
from fedleak.evaluation.risk import worst_clients
from fedleak.evaluation.scores import rows_of

Status = Literal["leak", "undecided", "near", "measured", "unmeasured", "inapplicable"]
"""What is known of a question: a leak; too few clients, no comparison or too wide an interval; less than a fifth of the
way from the comparison to certainty; a metric by which attacks are not compared; nothing; and that the question cannot
be asked of the recorded system."""
HALF = 0.5
"""Share of the way before which the interval of an attack ends that is near its comparison."""
_ORDER: Sequence[Status] = get_args(Status)
"""What stands first on a page."""


@dataclass(frozen=True)
class Reach:
    """Shares of the way from a comparison to certainty, from 0 to 1: of a mean, its interval, and the worst tenth."""

    mean: float
    low: float
    high: float
    worst: float | None = None


@dataclass(frozen=True)
class Answer:
    """What an audit found on a question, in one setting and by one metric; or why it found nothing.

    Attributes:
        family: family of attacks that ask it.
        question: name of the question, see `fedleak.core.estimates.Estimate.question`; None where it is unknown.
        inferred: what the server may infer, in words.
        status: see `Status`.
        setting: values of the setting by name.
        row: result of the best attack; None for a question that was not measured.
        comparison: what it is compared with; None for nothing.
        baseline: the best baseline among the comparisons; None for none.
        gain: share of the way from the comparison to certainty; None without a comparison.
        is_shown: whether the leak is shown, see `Cells.is_shown`.
        reach: the same share of the mean, the ends of the interval and the worst tenth, from 0 to 1; None without.
        attacks: labels of the attacks among which the best was chosen.
        ranked: results of these attacks, the best first.
        worst: values of the clients about whom most is inferred, see `fedleak.evaluation.risk.worst_clients`.
        bits: what the update adds to the prior, by the attack that adds the most; None where it was not measured.
        varied: names of the settings that differ between the results of the question.
        generated: whether the data are generated.
        about_data: whether it is about the content of a client's data, and not about whose update it is.
        reason: why it was not measured, or does not apply; empty if it was.
    """

    family: str
    question: str | None
    inferred: str
    status: Status
    setting: Mapping[str, Any] = field(default_factory=dict)
    row: Row | None = field(default=None, repr=False)
    comparison: Comparison | None = None
    baseline: Comparison | None = None
    gain: float | None = None
    is_shown: bool = False
    reach: Reach | None = None
    attacks: tuple[str, ...] = ()
    ranked: tuple[Row, ...] = field(default=(), repr=False)
    worst: "pd.Series[float]" = field(default_factory=lambda: pd.Series(dtype=float), compare=False, repr=False)
    bits: AddedBits | None = field(default=None, repr=False)
    varied: frozenset[str] = frozenset()
    generated: bool = False
    about_data: bool = True
    reason: str = ""

    @property
    def metric(self) -> str:
        """Metric by which the attacks are compared; empty for a question that was not measured."""
        if self.row is None:
            return ""
        return str(self.row["metric"])

    @property
    def is_of_too_few(self) -> bool:
        """Whether so few clients were attacked that no result on them could be shown.

        Luck has a probability of at least ``2^-n`` on n clients, for each of the attacks.
        """
        if self.row is None:
            return False
        tried = len({row["attack"] for row in self.ranked})
        return bool(self.row["n"] < FEWEST or 0.5 ** self.row["n"] * tried > LEVEL)

    @property
    def place(self) -> tuple[bool, bool, int, bool, float]:
        """Place among answers: measured, on real data, leaks, about the content of data, and goes furthest."""
        furthest = -math.inf if self.gain is None else self.gain
        return self.row is None, self.generated, _ORDER.index(self.status), not self.about_data, -furthest


def plain(answer: Answer) -> dict[str, Any]:
    """An answer as plain values, for files: without the tables that it was made from, None for what is not known."""
    row, comparison, added = answer.row, answer.comparison, answer.bits
    content: dict[str, Any] = {
        "family": answer.family,
        "question": answer.question,
        "inferred": answer.inferred,
        "status": answer.status,
        "reason": answer.reason,
    }
    if row is None:
        return content
    compared = None
    if comparison is not None:
        compared = {"kind": comparison.kind, "name": comparison.name, "value": comparison.value}
    worst = None
    if len(answer.worst):
        worst = {"clients": len(answer.worst), "value": float(answer.worst.mean())}
    return {
        **content,
        "setting": dict(answer.setting),
        "metric": answer.metric,
        "attack": row["attack"],
        "attacks": len(answer.attacks),
        "value": _finite(row["mean"]),
        "ci95": [_finite(row["low"]), _finite(row["high"])],
        "n": int(row["n"]),
        "compared_with": compared,
        "gain": answer.gain,
        "is_shown": answer.is_shown,
        "worst": worst,
        "bits": None if added is None else _finite(added.row["mean"]),
    }


def _finite(value: float) -> float | None:
    if math.isfinite(value):
        return float(value)
    return None


def answers(results: pd.DataFrame) -> list[Answer]:
    """An answer for each question, setting and metric by which its attacks are compared.

    Args:
        results: see `fedleak.evaluation.summary.summarise`.
    """
    if results.empty:
        return []
    cells = Cells(results)
    attacks = [row for row in cells.rows if row["role"] in ATTACKS]
    compared = [row for row in attacks if judges(row["metric"], row.get("question"))]
    # A question none of whose metrics compares attacks has the first metric of each attack.
    with_metric = {_question_and_family(row) for row in compared}
    first_metric: dict[tuple[Any, Any], str] = {}
    for row in attacks:
        key = _question_and_family(row)
        if key not in with_metric and row["metric"] == first_metric.setdefault(key, row["metric"]):
            compared.append(row)
    # A cell is a question in one setting by one metric.
    by_cell: dict[tuple[Any, ...], list[Row]] = {}
    for row in compared:
        values = [known(row.get(setting)) for setting in cells.settings]
        by_cell.setdefault((*_question_and_family(row), row["metric"], *values), []).append(row)
    varied = _varied_settings(cells.rows, cells.settings)
    answers_of_cells = []
    for rows in by_cell.values():
        question = rows[0].get("question")
        answers_of_cells.append(_answer(cells, rows, varied[question]))
    return answers_of_cells


def _answer(cells: Cells, rows: Sequence[Row], varied: frozenset[str]) -> Answer:
    """The answer of one cell, of the results of its attacks."""
    ranked = sorted(rows, key=cells.rank, reverse=True)
    best = ranked[0]
    is_shown = cells.is_shown(best)
    family = str(known(best.get("family")) or "")
    return Answer(
        family=family,
        question=known(best.get("question")),
        inferred=best.get("tells") or inferred_by_family().get(family, "something about the client"),
        status=_status(cells, best, is_shown=is_shown),
        setting=setting_of(best),
        row=best,
        comparison=cells.comparison(best),
        baseline=cells.baseline(best),
        gain=cells.gain(best),
        is_shown=is_shown,
        reach=_reach(cells, best),
        attacks=tuple(dict.fromkeys(str(row["attack"]) for row in rows)),
        ranked=tuple(ranked),
        bits=added_bits(best, cells),
        varied=varied,
        generated=str(best.get(DATA) or "").startswith("synthetic"),
        about_data=is_about_data().get(family, True),
    )


def _status(cells: Cells, best: Row, *, is_shown: bool) -> Status:
    """What the result of the best attack of a cell is."""
    if not judges(best["metric"], best.get("question")):
        return "measured"
    gain = cells.gain(best)
    if gain is None:
        return "undecided"
    if gain >= NEAR:
        if is_shown:
            return "leak"
        return "undecided"
    # Near the comparison, if also the end of the interval with more leakage is on the first half of the way.
    leaky_end = best["low"] if metric(best["metric"]).lower_is_better else best["high"]
    furthest = cells.gain(best, leaky_end)
    if furthest is not None and furthest < HALF:
        return "near"
    return "undecided"


def _reach(cells: Cells, best: Row) -> Reach | None:
    """Shares of the way of a mean and of the ends of its interval; None without a comparison."""
    mean = cells.gain(best, best["mean"])
    low = cells.gain(best, best["low"])
    high = cells.gain(best, best["high"])
    if mean is None or low is None or high is None:
        return None
    # Where less is more leakage, the lower end of the interval goes furthest.
    ends = _within(low), _within(high)
    return Reach(_within(mean), min(ends), max(ends))


def _within(share: float) -> float:
    return min(max(share, 0.0), 1.0)


def leading(all_answers: Iterable[Answer], scores: pd.DataFrame | None = None) -> list[Answer]:
    """For each question, data set and run the answer that goes furthest, in the order of `Answer.place`.

    A leak that is shown comes before one that is not. The attacks of all settings by the same metric count as those
    among which it was chosen.

    Args:
        all_answers: answers, of several settings and metrics.
        scores: scores of the clients, for the worst tenth of each; None if they are unknown.
    """
    by_question: dict[tuple[Any, ...], list[Answer]] = {}
    for answer in all_answers:
        data = answer.setting.get(DATA.removeprefix(SETTING))
        run = answer.setting.get(RUN.removeprefix(SETTING))
        by_question.setdefault((answer.question, answer.family, data, run), []).append(answer)
    chosen = []
    for of_question in by_question.values():
        best = max(of_question, key=goes_furthest)
        labels: dict[str, None] = {}
        for answer in of_question:
            if answer.metric == best.metric:
                labels.update(dict.fromkeys(answer.attacks))
        best = replace(best, attacks=tuple(labels))
        if scores is not None and not scores.empty:
            best = _with_worst(best, scores)
        chosen.append(best)
    return sorted(chosen, key=lambda answer: answer.place)


def _with_worst(answer: Answer, scores: pd.DataFrame) -> Answer:
    """An answer with the clients about whom most is inferred."""
    assert answer.row is not None  # it was measured
    worst = worst_clients(rows_of(scores, answer.row))
    reach, comparison = answer.reach, answer.comparison
    if reach is not None and comparison is not None and len(worst):
        share = share_of_the_way(answer.row, float(worst.mean()), comparison.value)
        share_of_worst = None if share is None else _within(share)
        reach = replace(reach, worst=share_of_worst)
    return replace(answer, worst=worst, reach=reach)


def goes_furthest(answer: Answer) -> tuple[bool, float]:
    """What puts one answer before another on the same question, larger for better: shown, then how far it goes."""
    return answer.is_shown, -math.inf if answer.gain is None else answer.gain


def recorded_answers(results: pd.DataFrame) -> list[Answer]:
    """The `answers` about a recording as it is, without results under defences that were tried on it."""
    return answers(as_recorded(results))


def _question_and_family(row: Mapping[str, Any]) -> tuple[Any, Any]:
    return known(row.get("question")), known(row.get("family"))


def _varied_settings(rows: Sequence[Row], settings: Sequence[str]) -> dict[Any, frozenset[str]]:
    """By question the names of the settings that differ between its results, those of no question among them."""
    varied = {}
    for question in dict.fromkeys(row.get("question") for row in rows):
        of_question = [row for row in rows if row.get("question") == question or known(row.get("question")) is None]
        differing = set()
        for name in settings:
            values = {repr(known(row.get(name))) for row in of_question}
            if len(values) > 1:
                differing.add(name.removeprefix(SETTING))
        varied[question] = frozenset(differing)
    return varied
