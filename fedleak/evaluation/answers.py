"""Answers: for each question the best attack, what it is compared with, how far it goes, and whether that is a leak.

The rules for all of these stand here and nowhere else; docs/audit/reports.md ("How an answer is made") has them with
their formulas. Every page, figure, gate, statement and export reads a table of `Answer` and defines none of it again.
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args

import pandas as pd

from fedleak.core.metric_table import judges, metric
from fedleak.evaluation.added_bits import AddedBits, added_bits
from fedleak.evaluation.as_recorded import as_recorded
from fedleak.evaluation.attack_descriptions import described, descriptions
from fedleak.evaluation.limits import FEWEST
from fedleak.evaluation.result_names import ATTACKS, DATA, LUCK, RUN, SETTING, setting_of
from fedleak.evaluation.risk import worst_clients
from fedleak.evaluation.scores import records, rows_of, setting_columns

Row = dict[str, Any]
"""Row of a table of results, see `fedleak.evaluation.summary.summarise`."""
Kind = Literal["guessing", "chance", "prior", "blind", "control", "least"]
"""Kinds of comparisons: the value of guessing for any data, what the attack's own answers reach by chance, a prior, a
baseline that reads no update, a control, and the least value of a question for which there is no baseline."""
Status = Literal["leak", "undecided", "near", "measured", "unmeasured", "inapplicable"]
"""What is known of a question: a leak; too few clients, no comparison or too wide an interval; less than a fifth of the
way from the comparison to certainty; a metric by which attacks are not compared; nothing; and that the question cannot
be asked of the recorded system."""
NEAR = 0.2
"""Share of the way from the comparison to certainty below which an attack infers hardly anything; an AUC of 0.6."""
HALF = 0.5
"""Share of the way before which the interval of an attack ends that is near its comparison."""
LEVEL = 0.05
"""Largest probability of luck, times the number of attacks that were tried, of a leak that counts as shown."""
_ORDER: Sequence[Status] = get_args(Status)
"""What stands first on a page."""


@dataclass(frozen=True)
class Comparison:
    """A value that needs no update of the client, with which an attack is compared.

    Attributes:
        kind: see `Kind`.
        value: value of the metric.
        name: label of the baseline, or of the attack whose answers are by chance; the kind for the others.
        row: its row of results; None where it is no line of the results.
        elsewhere: whether it was measured in another setting of the same data.
    """

    kind: Kind
    value: float
    name: str
    row: Row | None = field(default=None, compare=False, repr=False)
    elsewhere: bool = False


class Cells:
    """Results by question, setting and metric, and what attacks are compared with in them.

    Args:
        results: see `fedleak.evaluation.summary.summarise`; rows without a value count as absent.

    Example:
        >>> import pandas as pd
        >>> line = {"question": "q", "metric": "auc", "n": 20, "setting.data": "d"}
        >>> attack = {**line, "attack": "codebook", "role": "ours", "mean": 0.9, "low": 0.8, "high": 1.0}
        >>> prior = {**line, "attack": "popularity", "role": "baseline", "comparison": "prior", "mean": 0.6}
        >>> cells = Cells(pd.DataFrame([attack, prior]))
        >>> cells.comparison(attack).name, round(cells.gain(attack), 2)  # three quarters of the way from 0.6 to 1
        ('popularity', 0.75)
    """

    def __init__(self, results: pd.DataFrame) -> None:
        self.settings = setting_columns(results)
        self.rows: list[Row] = records(results[results["mean"].notna()])
        self._by_cell: dict[tuple[Any, ...], list[Row]] = {}
        self._by_data: dict[tuple[Any, ...], list[Row]] = {}
        self._compared: dict[tuple[Any, ...], list[Comparison]] = {}
        for row in self.rows:
            self._by_cell.setdefault(self._key(row, row["metric"]), []).append(row)
            self._by_data.setdefault(self._data_key(row), []).append(row)

    def _key(self, row: Mapping[str, Any], name: str) -> tuple[Any, ...]:
        values = (_known(row.get(setting)) for setting in self.settings)
        return (_known(row.get("question")), name, *values)

    @staticmethod
    def _data_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return _known(row.get("question")), row["metric"], _known(row.get(DATA))

    def cell(self, row: Mapping[str, Any], name: str | None = None) -> list[Row]:
        """Results of the same question and setting as a row, by its metric or by another one."""
        return self._by_cell.get(self._key(row, name or row["metric"]), [])

    def of_attack(self, row: Mapping[str, Any], name: str) -> float | None:
        """Mean of the attack of a row by another metric in the same setting; None where there is none."""
        means = [other["mean"] for other in self.cell(row, name) if other["attack"] == row["attack"]]
        return float(means[0]) if means else None

    def attacks(self, row: Mapping[str, Any]) -> list[Row]:
        """Results of the attacks in the cell of a row, by its metric."""
        return [other for other in self.cell(row) if other["role"] in ATTACKS]

    def tried(self, row: Mapping[str, Any]) -> int:
        """Number of attacks on the question and setting of a row that have its metric."""
        return len({other["attack"] for other in self.attacks(row)})

    def comparisons(self, row: Mapping[str, Any]) -> list[Comparison]:
        """Everything that an attack is compared with, by the metric of its row; empty where nothing is known.

        None of them reads an update of the client. Baselines of the same setting count, and where none ran there, those
        of the same data. Nothing is known, so that no leak is shown, in three cases:

        * A question has a prior in this version, and none ran: guessing alone is too weak.
        * It has a blind baseline, none ran, and the metric has no value of guessing.
        * An error has no other comparison than controls: noise makes their errors grow too.
        """
        key = *self._key(row, row["metric"]), row["attack"]
        if key not in self._compared:
            self._compared[key] = self._comparisons(row)
        return self._compared[key]

    def _comparisons(self, row: Mapping[str, Any]) -> list[Comparison]:
        entry, question = metric(row["metric"]), _known(row.get("question"))
        # What needs no baseline: the value of guessing, and what the attack's own answers reach by chance.
        found: list[Comparison] = []
        if entry.guessing is not None:
            found.append(Comparison("guessing", float(entry.guessing), "guessing"))
        for other in self.cell(row, f"{row['metric']}-by-chance"):
            if other["attack"] == row["attack"]:
                found.append(Comparison("chance", float(other["mean"]), str(other["attack"]), other))
        # Baselines of the cell, else of the data.
        baselines = [other for other in self.cell(row) if _compares(other)]
        elsewhere = not baselines
        if elsewhere:
            baselines = [other for other in self._by_data.get(self._data_key(row), []) if _compares(other)]
        for other in baselines:
            kind = cast("Kind", _comparison_of(other))
            found.append(Comparison(kind, float(other["mean"]), str(other["attack"]), other, elsewhere))
        kinds = {one.kind for one in found}
        known = _known_comparisons().get(question or "", frozenset())
        if "prior" in known and "prior" not in kinds:
            return []
        if kinds - {"control"}:
            return found
        # Only controls, or nothing.
        if entry.lower_is_better:
            return []
        if kinds:
            return found
        return [] if known & {"blind", "control"} else [Comparison("least", 0.0, "nothing")]

    def comparison(self, row: Mapping[str, Any]) -> Comparison | None:
        """The comparison that is nearest to certainty; None where an attack is compared with nothing."""
        entry = metric(row["metric"])
        return max(self.comparisons(row), key=lambda one: entry.leakage(one.value), default=None)

    def baseline(self, row: Mapping[str, Any]) -> Comparison | None:
        """The best of the baselines among the comparisons; None where there is none."""
        entry = metric(row["metric"])
        baselines = [one for one in self.comparisons(row) if one.kind in ("prior", "blind", "control")]
        return max(baselines, key=lambda one: entry.leakage(one.value), default=None)

    def gain(self, row: Mapping[str, Any], value: float | None = None) -> float | None:
        """Share of the way from the comparison to certainty: ``(value - comparison) / (certainty - comparison)``.

        It is negative for a value that is worse than the comparison, and 0 where the comparison is certain already.

        Args:
            row: result of an attack.
            value: value of its metric; None for its mean.

        Returns:
            The share; None without a comparison or a value, or for a metric by which attacks are not compared.
        """
        comparison = self.comparison(row)
        return None if comparison is None else _share_of_the_way(row, value, comparison.value)

    def most_gain(self, row: Mapping[str, Any], value: float | None = None) -> float | None:
        """The most that `gain` could be: that from guessing, where a stronger comparison did not run."""
        gain, guessing = self.gain(row, value), metric(row["metric"]).guessing
        return gain if gain is not None or guessing is None else _share_of_the_way(row, value, guessing)

    def is_shown(self, row: Mapping[str, Any]) -> bool:
        """Whether an attack is better than everything that it is compared with, and not by luck.

        At least `FEWEST` clients are needed, a comparison, and a probability of luck of at most `LEVEL` for all attacks
        of the cell together, see `fedleak.evaluation.luck`. Where that is unknown (results of an earlier version, or a
        comparison from another setting), the whole interval must lie beyond the comparison.
        """
        comparison = self.comparison(row)
        if row["n"] < FEWEST or comparison is None:
            return False
        entry = metric(row["metric"])
        if entry.leakage(row["mean"]) <= entry.leakage(comparison.value):
            return False
        luck = row.get(LUCK, math.nan)
        if luck == luck and not comparison.elsewhere:
            return bool(luck * self.tried(row) <= LEVEL)
        safe_end = row["high" if entry.lower_is_better else "low"]
        return bool(entry.leakage(safe_end) > entry.leakage(comparison.value))

    def is_near(self, row: Mapping[str, Any]) -> bool:
        """Whether an attack goes less than `NEAR` of the way from its comparison to certainty, or so far by luck."""
        gain = self.most_gain(row)
        if gain is None:
            return not metric(row["metric"]).lower_is_better and bool(row["low"] <= 0)
        return gain < NEAR or not self._is_beyond_luck(row)

    def _is_beyond_luck(self, row: Mapping[str, Any]) -> bool:
        """Whether an attack by itself, not as the best of several, is better than its comparison and not by luck."""
        luck = row.get(LUCK, math.nan)
        if luck == luck:
            return bool(luck <= LEVEL)
        safe_end = row["high" if metric(row["metric"]).lower_is_better else "low"]
        gain = self.most_gain(row, safe_end)
        return gain is not None and gain > 0

    def rank(self, row: Mapping[str, Any]) -> tuple[bool, float, float]:
        """What puts one attack before another, larger for better: a leak that is shown, then how far it goes."""
        gain = self.gain(row)
        leakage = metric(row["metric"]).leakage(row["mean"])
        return self.is_shown(row), -math.inf if gain is None else gain, leakage


@dataclass(frozen=True)
class Reach:
    """Shares of the way from a comparison to certainty, from 0 to 1: of a mean, its interval, and the worst tenth."""

    mean: float
    low: float
    high: float
    worst: float | None


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
        return "" if self.row is None else str(self.row["metric"])

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


def answers(results: pd.DataFrame, scores: pd.DataFrame | None = None) -> list[Answer]:
    """An answer for each question, setting and metric by which its attacks are compared.

    Args:
        results: see `fedleak.evaluation.summary.summarise`.
        scores: scores of the clients, for the worst tenth; None if they are unknown.
    """
    if results.empty:
        return []
    cells = Cells(results)
    attacks = [row for row in cells.rows if row["role"] in ATTACKS]
    compared = [row for row in attacks if judges(row["metric"], row.get("question"))]
    # A question none of whose metrics compares attacks has the first metric of each attack.
    with_metric = {_asked(row) for row in compared}
    first_metric: dict[tuple[Any, Any], str] = {}
    for row in attacks:
        if _asked(row) not in with_metric and row["metric"] == first_metric.setdefault(_asked(row), row["metric"]):
            compared.append(row)
    by_cell: dict[tuple[Any, ...], list[Row]] = {}
    for row in compared:
        values = (_known(row.get(setting)) for setting in cells.settings)
        by_cell.setdefault((*_asked(row), row["metric"], *values), []).append(row)
    varied = _varied_settings(cells.rows, cells.settings)
    return [_answer(cells, rows, varied[rows[0].get("question")], scores) for rows in by_cell.values()]


def _answer(cells: Cells, rows: Sequence[Row], varied: frozenset[str], scores: pd.DataFrame | None) -> Answer:
    """The answer of one cell, of the results of its attacks."""
    ranked = sorted(rows, key=cells.rank, reverse=True)
    best = ranked[0]
    worst = pd.Series(dtype=float)
    if scores is not None and not scores.empty:
        worst = worst_clients(rows_of(scores, best))
    is_shown = cells.is_shown(best)
    family = str(_known(best.get("family")) or "")
    return Answer(
        family=family,
        question=_known(best.get("question")),
        inferred=best.get("tells") or inferred_by_family().get(family, "something about the client"),
        status=_status(cells, best, is_shown=is_shown),
        setting=setting_of(best),
        row=best,
        comparison=cells.comparison(best),
        baseline=cells.baseline(best),
        gain=cells.gain(best),
        is_shown=is_shown,
        reach=_reach(cells, best, worst),
        attacks=tuple(dict.fromkeys(str(row["attack"]) for row in rows)),
        ranked=tuple(ranked),
        worst=worst,
        bits=added_bits(best, cells),
        varied=varied,
        generated=str(best.get(DATA) or "").startswith("synthetic"),
        about_data=is_about_data().get(family, True),
    )


def _share_of_the_way(row: Mapping[str, Any], value: float | None, start: float) -> float | None:
    """Share of the way from a value to certainty at which another one, or the mean, of a result lies."""
    value = float(row["mean"]) if value is None else float(value)
    if not judges(row["metric"], row.get("question")) or math.isnan(value):
        return None
    way = metric(row["metric"]).certainty - start
    return (value - start) / way if way else 0.0


def _status(cells: Cells, best: Row, *, is_shown: bool) -> Status:
    """What the result of the best attack of a cell is."""
    if not judges(best["metric"], best.get("question")):
        return "measured"
    gain = cells.gain(best)
    if gain is None:
        return "undecided"
    if gain >= NEAR:
        return "leak" if is_shown else "undecided"
    leaky_end = best["low" if metric(best["metric"]).lower_is_better else "high"]
    furthest = cells.gain(best, leaky_end)
    return "near" if furthest is not None and furthest < HALF else "undecided"


def _reach(cells: Cells, best: Row, worst: "pd.Series[float]") -> Reach | None:
    shares = [cells.gain(best, best[name]) for name in ("mean", "low", "high")]
    mean, low, high = (None if share is None else _within(share) for share in shares)
    if mean is None or low is None or high is None:
        return None
    of_worst = cells.gain(best, float(worst.mean())) if len(worst) else None
    return Reach(mean, min(low, high), max(low, high), None if of_worst is None else _within(of_worst))


def _within(share: float) -> float:
    return min(max(share, 0.0), 1.0)


def leading(found: Iterable[Answer]) -> list[Answer]:
    """For each question, data set and run the answer that goes furthest, in the order of `Answer.place`.

    A leak that is shown comes before one that is not. The attacks of all settings by the same metric count as those
    among which it was chosen.
    """
    by_question: dict[tuple[Any, ...], list[Answer]] = {}
    for answer in found:
        data, run = (answer.setting.get(name.removeprefix(SETTING)) for name in (DATA, RUN))
        by_question.setdefault((answer.question, answer.family, data, run), []).append(answer)
    chosen = []
    for of_question in by_question.values():
        best = max(of_question, key=goes_furthest)
        labels = [label for one in of_question if one.metric == best.metric for label in one.attacks]
        chosen.append(replace(best, attacks=tuple(dict.fromkeys(labels))))
    return sorted(chosen, key=lambda answer: answer.place)


def goes_furthest(answer: Answer) -> tuple[bool, float]:
    """What puts one answer before another on the same question, larger for better: shown, then how far it goes."""
    return answer.is_shown, -math.inf if answer.gain is None else answer.gain


def recorded_answers(results: pd.DataFrame, scores: pd.DataFrame | None = None) -> list[Answer]:
    """The `answers` about a recording as it is, without results under defences that were tried on it."""
    return answers(as_recorded(results), scores)


def _known(value: Any) -> Any:
    """A value, None where it is missing."""
    return None if value is None or value != value else value


def _asked(row: Mapping[str, Any]) -> tuple[Any, Any]:
    return _known(row.get("question")), _known(row.get("family"))


def _compares(row: Mapping[str, Any]) -> bool:
    """Whether a result is of a baseline with which attacks are compared."""
    return row["role"] == "baseline" and bool(_comparison_of(row))


def _comparison_of(row: Mapping[str, Any]) -> str:
    """What a baseline is as a comparison; empty for one that an earlier version compared with, and that is an attack.

    Results of an earlier version do not say it: then it is what the attack of that name is in this version.
    """
    declared = _known(row.get("comparison"))
    if declared:
        return str(declared)
    names = (_known(row.get("name")) or str(row["attack"]), str(row["attack"]))
    return next((_comparison_by_name()[name] for name in names if name in _comparison_by_name()), "blind")


def _varied_settings(rows: Sequence[Row], settings: Sequence[str]) -> dict[Any, frozenset[str]]:
    """By question the names of the settings that differ between its results, those of no question among them."""
    questions = dict.fromkeys(row.get("question") for row in rows)
    found = {}
    for question in questions:
        own = [row for row in rows if row.get("question") == question or _known(row.get("question")) is None]
        differing = [name for name in settings if len({repr(_known(row.get(name))) for row in own}) > 1]
        found[question] = frozenset(name.removeprefix(SETTING) for name in differing)
    return found


@functools.cache
def _known_comparisons() -> dict[str, frozenset[str]]:
    """By question the kinds of comparisons that the baselines of this version are."""
    kinds: dict[str, frozenset[str]] = {}
    for attack in described():
        if attack.baseline:
            kinds[attack.estimates] = kinds.get(attack.estimates, frozenset()) | {attack.comparison}
    return kinds


@functools.cache
def _comparison_by_name() -> dict[str, str]:
    """What each attack of this version is as a comparison, by every name of its results; empty for no baseline."""
    kinds: dict[str, str] = {}
    for attack in descriptions().attacks:
        for label in attack.labels:
            kinds[label] = kinds[f"{attack.family}/{label}"] = attack.comparison
    return kinds


@functools.cache
def inferred_by_family() -> dict[str, str]:
    """What the server may infer, by family: of its first attack."""
    questions: dict[str, str] = {}
    for attack in described():
        if not attack.baseline:
            questions.setdefault(attack.family, attack.inferred)
    return questions


@functools.cache
def is_about_data() -> dict[str, bool]:
    """Whether the question of each family is about the content of a client's data."""
    about: dict[str, bool] = {}
    for attack in described():
        about[attack.family] = about.get(attack.family, False) or attack.about_data
    return about
