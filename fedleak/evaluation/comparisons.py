"""What attacks are compared with, how far they go from there towards certainty, and whether that is shown.

The rules for a comparison and for a gain stand here; docs/audit/reports.md ("How an answer is made") has them with
their formulas.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import pandas as pd

from fedleak.core.metric_table import judges, metric
from fedleak.evaluation.attack_descriptions import described, descriptions
from fedleak.evaluation.limits import FEWEST
from fedleak.evaluation.result_names import ATTACKS, DATA, LUCK
from fedleak.evaluation.scores import records, setting_columns

Row = dict[str, Any]
"""Row of a table of results, see `fedleak.evaluation.summary.summarise`."""
Kind = Literal["guessing", "chance", "prior", "blind", "control", "least"]
"""Kinds of comparisons: the value of guessing for any data, what the attack's own answers reach by chance, a prior, a
baseline that reads no update, a control, and the least value of a question for which there is no baseline."""
NEAR = 0.2
"""Share of the way from the comparison to certainty below which an attack infers hardly anything; an AUC of 0.6."""
LEVEL = 0.05
"""Largest probability of luck, times the number of attacks that were tried, of a leak that counts as shown."""


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
        with_value = results["mean"].notna()
        self.rows: list[Row] = records(results[with_value])
        # Rows by question, metric and setting, and by question, metric and data; comparisons by cell and attack.
        self._by_cell: dict[tuple[Any, ...], list[Row]] = {}
        self._by_data: dict[tuple[Any, ...], list[Row]] = {}
        self._compared: dict[tuple[Any, ...], list[Comparison]] = {}
        for row in self.rows:
            key = self._key(row, row["metric"])
            self._by_cell.setdefault(key, []).append(row)
            data_key = self._data_key(row)
            self._by_data.setdefault(data_key, []).append(row)

    def _key(self, row: Mapping[str, Any], name: str) -> tuple[Any, ...]:
        values = [known(row.get(setting)) for setting in self.settings]
        return (known(row.get("question")), name, *values)

    @staticmethod
    def _data_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return known(row.get("question")), row["metric"], known(row.get(DATA))

    def cell(self, row: Mapping[str, Any], name: str | None = None) -> list[Row]:
        """Results of the same question and setting as a row, by its metric or by another one."""
        return self._by_cell.get(self._key(row, name or row["metric"]), [])

    def of_attack(self, row: Mapping[str, Any], name: str) -> float | None:
        """Mean of the attack of a row by another metric in the same setting; None where there is none."""
        for cell_row in self.cell(row, name):
            if cell_row["attack"] == row["attack"]:
                return float(cell_row["mean"])
        return None

    def attacks(self, row: Mapping[str, Any]) -> list[Row]:
        """Results of the attacks in the cell of a row, by its metric."""
        return [cell_row for cell_row in self.cell(row) if cell_row["role"] in ATTACKS]

    def tried(self, row: Mapping[str, Any]) -> int:
        """Number of attacks on the question and setting of a row that have its metric."""
        return len({attack_row["attack"] for attack_row in self.attacks(row)})

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
        entry = metric(row["metric"])
        question = known(row.get("question"))
        # What needs no baseline: the value of guessing, and what the attack's own answers reach by chance.
        comparisons: list[Comparison] = []
        if entry.guessing is not None:
            comparisons.append(Comparison("guessing", float(entry.guessing), "guessing"))
        for by_chance in self.cell(row, f"{row['metric']}-by-chance"):
            if by_chance["attack"] == row["attack"]:
                comparisons.append(Comparison("chance", float(by_chance["mean"]), str(by_chance["attack"]), by_chance))
        comparisons += self._baselines(row)
        kinds = {comparison.kind for comparison in comparisons}
        in_this_version = _known_comparisons().get(question or "", frozenset())
        # A prior that did not run would be stronger than what did.
        if "prior" in in_this_version and "prior" not in kinds:
            return []
        if kinds - {"control"}:
            return comparisons
        # Only controls, or nothing. Noise makes the errors of controls grow too.
        if entry.lower_is_better:
            return []
        if kinds:
            return comparisons
        # A question without baselines in this version is compared with the least value.
        if in_this_version & {"blind", "control"}:
            return []
        return [Comparison("least", 0.0, "nothing")]

    def _baselines(self, row: Mapping[str, Any]) -> list[Comparison]:
        """The baselines of the cell of a row, or where none ran there, of its data."""
        baselines = [cell_row for cell_row in self.cell(row) if _compares(cell_row)]
        elsewhere = not baselines
        if elsewhere:
            of_data = self._by_data.get(self._data_key(row), [])
            baselines = [data_row for data_row in of_data if _compares(data_row)]
        comparisons = []
        for baseline in baselines:
            kind = cast("Kind", _comparison_of(baseline))
            mean = float(baseline["mean"])
            comparisons.append(Comparison(kind, mean, str(baseline["attack"]), baseline, elsewhere))
        return comparisons

    def comparison(self, row: Mapping[str, Any]) -> Comparison | None:
        """The comparison that is nearest to certainty; None where an attack is compared with nothing."""
        entry = metric(row["metric"])
        return max(self.comparisons(row), key=lambda comparison: entry.leakage(comparison.value), default=None)

    def baseline(self, row: Mapping[str, Any]) -> Comparison | None:
        """The best of the baselines among the comparisons; None where there is none."""
        entry = metric(row["metric"])
        baselines = []
        for comparison in self.comparisons(row):
            if comparison.kind in ("prior", "blind", "control"):
                baselines.append(comparison)
        return max(baselines, key=lambda comparison: entry.leakage(comparison.value), default=None)

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
        if comparison is None:
            return None
        return share_of_the_way(row, value, comparison.value)

    def most_gain(self, row: Mapping[str, Any], value: float | None = None) -> float | None:
        """The most that `gain` could be: that from guessing, where a stronger comparison did not run."""
        gain = self.gain(row, value)
        guessing = metric(row["metric"]).guessing
        if gain is not None or guessing is None:
            return gain
        return share_of_the_way(row, value, guessing)

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
        # By luck, for as many attacks as were tried (Bonferroni), where it is known (not NaN).
        luck = row.get(LUCK, math.nan)
        if luck == luck and not comparison.elsewhere:
            return bool(luck * self.tried(row) <= LEVEL)
        safe_end = row["high"] if entry.lower_is_better else row["low"]
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
        if luck == luck:  # not NaN
            return bool(luck <= LEVEL)
        safe_end = row["high"] if metric(row["metric"]).lower_is_better else row["low"]
        gain = self.most_gain(row, safe_end)
        return gain is not None and gain > 0

    def rank(self, row: Mapping[str, Any]) -> tuple[bool, float, float]:
        """What puts one attack before another, larger for better: a leak that is shown, then how far it goes."""
        gain = self.gain(row)
        leakage = metric(row["metric"]).leakage(row["mean"])
        return self.is_shown(row), -math.inf if gain is None else gain, leakage


def share_of_the_way(row: Mapping[str, Any], value: float | None, start: float) -> float | None:
    """Share of the way from `start` to certainty at which a value of the metric of a result lies.

    Args:
        row: the result.
        value: value of its metric; None for its mean.
        start: value that has the share 0.

    Returns:
        The share; None for no value, or for a metric by which attacks are not compared.
    """
    value = float(row["mean"]) if value is None else float(value)
    if not judges(row["metric"], row.get("question")) or math.isnan(value):
        return None
    # (value - start) / (certainty - start)
    way = metric(row["metric"]).certainty - start
    if way:
        return (value - start) / way
    return 0.0


def known(value: Any) -> Any:
    """A value, None where it is missing."""
    if value is None or value != value:
        return None
    return value


def _compares(row: Mapping[str, Any]) -> bool:
    """Whether a result is of a baseline with which attacks are compared."""
    return row["role"] == "baseline" and bool(_comparison_of(row))


def _comparison_of(row: Mapping[str, Any]) -> str:
    """What a baseline is as a comparison; empty for one that an earlier version compared with, and that is an attack.

    Results of an earlier version do not say it: then it is what the attack of that name is in this version.
    """
    declared = known(row.get("comparison"))
    if declared:
        return str(declared)
    label = str(row["attack"])
    for name in (known(row.get("name")) or label, label):
        if name in _comparison_by_name():
            return _comparison_by_name()[name]
    # A baseline that this version does not know.
    return "blind"


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


def baselines_of(question: str | None) -> list[str]:
    """Names of the baselines of a question in this version that need no update."""
    names = []
    for attack in described():
        if attack.estimates == question and attack.comparison in ("prior", "blind"):
            names.append(attack.name)
    return names
