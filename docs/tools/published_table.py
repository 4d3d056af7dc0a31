"""Results of one published table, with the functions that the templates of the results page call."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedleak.core.errors import require
from fedleak.evaluation.result_names import LUCK
from fedleak.evaluation.run import Run
from fedleak.evaluation.scores import SETTING
from fedleak.evaluation.summary import RATIO
from fedleak.reports.tables import is_single

Where = Mapping[str, Any]


@dataclasses.dataclass
class PublishedTable:
    """Results of one table, for the template.

    Attributes:
        name: name of the file.
        run: its content.
        verdict: whether the numbers compare with the paper's, and why; None until the template says it.
    """

    name: str
    run: Run
    verdict: str | None = None

    def comparable(self, verdict: str) -> str:
        """Says whether the numbers compare with the paper's, and why. Every table of the page must say it."""
        self.verdict = verdict
        return f"Comparable with the paper: {verdict}"

    @property
    def is_wide(self) -> bool:
        """Whether its intervals are for clients like these; earlier versions had bootstraps, and no luck in results."""
        return bool(self.run.results[LUCK].notna().any())

    @property
    def minutes(self) -> str:
        """Wall time of the command, unless an earlier, stopped command had finished cells."""
        if self.run.read_back:
            return "continued"
        return f"{self.run.seconds / 60:.0f}"

    def value(self, attack: str, metric: str, digits: int = 3, **setting: Any) -> str:
        """Mean of one cell."""
        return _fixed(self._cell(attack, metric, setting)["mean"], digits)

    def paper(self, attack: str, metric: str, digits: int = 3, **setting: Any) -> str:
        """The paper's value next to one cell."""
        return _fixed(self._cell(attack, metric, setting)["paper"], digits)

    def full(self, attack: str, metric: str, digits: int = 3, **setting: Any) -> str:
        """Mean of one cell with its interval and n."""
        row = self._cell(attack, metric, setting)
        if is_single(row):
            return f"{_fixed(row['mean'], digits)} (n = 1)"
        mean, low, high = (_fixed(row[name], digits) for name in ("mean", "low", "high"))
        return f"{mean} ({low} to {high}, n = {row['n']}{_seeds(row['seeds'])})"

    def settings(self, key: str, **setting: Any) -> str:
        """Values of a setting in the cells of other settings."""
        rows = self.run.results
        for name, value in setting.items():
            rows = rows[rows[SETTING + name].map(str) == str(value)]
        return ", ".join(dict.fromkeys(str(value) for value in rows[SETTING + key] if value is not None))

    def difference(self, attack: str, against: str, metric: str, digits: int = 3, **setting: Any) -> str:
        """Paired difference of two attacks' means with its interval; ``published`` for the best published attack."""
        row = self._difference(attack, against, metric, setting)
        mean, low, high = (f"{row[name]:+.{digits}f}" for name in ("mean", "low", "high"))
        return f"{mean} ({low} to {high})"

    def grid(
        self,
        metric: str,
        lines: Mapping[str, str | Where],
        columns: Mapping[str, Where] | tuple[str, Sequence[Any]],
        each: tuple[str, Sequence[Any]] | None = None,
        digits: int = 2,
        intervals: bool = True,
        **where: Any,
    ) -> str:
        """Markdown table of one metric, with the largest half-width of a line's intervals and its n.

        Args:
            metric: name of the metric.
            lines: attack by label, or a mapping with ``attack`` and settings of the line. ``paper: true`` shows the
                paper's values next to that attack, ``against: NAME`` the ratio of the attack's mean to another's on the
                same clients and seeds, and its interval; ``against: published`` to the best published attack's.
            columns: settings by header, or a setting and its values.
            each: a setting whose values are shown in one cell, with slashes.
            digits: digits after the point.
            intervals: whether the half-widths are shown.
            **where: settings of all cells.
        """
        if not isinstance(columns, Mapping):
            column_setting, column_values = columns
            columns = {str(value): {column_setting: value} for value in column_values}
        header = ["", *columns]
        if intervals:
            header.append("interval within")
        header.append("n")
        rows = [header, ["---"] * len(header)]
        # Settings whose numbers stand in one cell; one without further ones for a single number.
        settings_in_cell: list[Where] = [{}]
        if each is not None:
            each_setting, each_values = each
            settings_in_cell = [{each_setting: value} for value in each_values]
        for label, line in lines.items():
            of_line = {"attack": line} if isinstance(line, str) else dict(line)
            texts = []
            numbers: list[dict[str, Any]] = []
            for column in columns.values():
                cell = [self._entry(metric, {**where, **of_line, **column, **inner}) for inner in settings_in_cell]
                texts.append(" / ".join(_text(entry, digits) for entry in cell) if any(cell) else "")
                numbers += [entry for entry in cell if entry is not None]
            row = [label, *texts]
            if intervals:
                # Of ratios, whose intervals are not symmetric, the cell has the ends.
                row.append("" if "against" in of_line else _largest_half_width(numbers, digits))
            rows.append([*row, _people(numbers)])
        return "\n".join(_markdown_row(row) for row in rows)

    def _entry(self, metric: str, where: dict[str, Any]) -> dict[str, Any] | None:
        """Numbers of one cell; None if the paper has no value or the line is not in this column."""
        setting = dict(where)
        attack = setting.pop("attack")
        paper = setting.pop("paper", False)
        against = setting.pop("against", None)
        if setting.pop("absent", False):
            return None
        if against is not None:
            return self._ratio(attack, against, metric, setting)
        row = self._cell(attack, metric, setting)
        if not paper:
            return row
        if math.isnan(row["paper"]):
            return None
        return {"mean": row["paper"]}

    def _ratio(self, attack: str, against: str, metric: str, setting: Where) -> dict[str, Any]:
        """Ratio of two attacks' means with its interval."""
        row = self._difference(attack, against, metric, setting)
        ratio, low, high = (row[column] for column in RATIO)
        return {"mean": ratio, "low": low, "high": high, "n": row["n"], "seeds": row["seeds"], "ratio": True}

    def _difference(self, attack: str, against: str, metric: str, setting: Where) -> dict[str, Any]:
        """Paired difference of two attacks, or of one and the best published attack."""
        differences = self.run.differences
        rows = differences[(differences["attack"] == attack) & (differences["metric"] == metric)]
        if against == "published":
            results = self.run.results
            rows = rows[rows["against"].isin(results.loc[results["role"] == "published", "attack"])]
        else:
            rows = rows[rows["against"] == against]
        return self._only(rows, f"difference of {attack} and {against} in {metric}", setting)

    def _cell(self, attack: str, metric: str, setting: Where) -> dict[str, Any]:
        results = self.run.results
        rows = results[(results["attack"] == attack) & (results["metric"] == metric)]
        return self._only(rows, f"{metric} of {attack}", setting)

    def _only(self, rows: pd.DataFrame, what: str, setting: Where) -> dict[str, Any]:
        """The one row in a setting, whose values compare as texts."""
        for key, value in setting.items():
            if SETTING + key not in rows:
                rows = rows[:0]
                break
            rows = rows[rows[SETTING + key].map(str) == str(value)]
        count = f"{len(rows)} in {self.name}"
        require(len(rows) == 1, f"one cell with the {what}, {dict(setting)}", count, "Name its settings, or run it.")
        return {str(key): value for key, value in rows.iloc[0].items()}


def _markdown_row(cells: Sequence[str]) -> str:
    padded = [f" {cell} " if cell else " " for cell in cells]
    return f"|{'|'.join(padded)}|"


def _largest_half_width(numbers: Sequence[Mapping[str, Any]], digits: int) -> str:
    """The largest half-width of some intervals, rounded up; empty where none has one."""
    half_widths = []
    for entry in numbers:
        if "n" in entry and not is_single(entry):
            half_width = (entry["high"] - entry["low"]) / 2
            if not math.isnan(half_width):
                half_widths.append(half_width)
    if not half_widths:
        return ""
    # Six decimals first: 0.07 * 100 is a little above 7, and would be rounded up to 8.
    scaled = math.ceil(round(max(half_widths) * 10**digits, 6))
    return _fixed(scaled / 10**digits, digits)


def _fixed(value: float, digits: int) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.{digits}f}"


def _text(entry: dict[str, Any] | None, digits: int) -> str:
    """Mean of a cell; of a ratio, whose interval is not symmetric, with its ends."""
    if entry is None:
        return "-"
    mean = _fixed(entry["mean"], digits)
    if "ratio" not in entry:
        return mean
    return f"{mean} ({_fixed(entry['low'], digits)} to {_fixed(entry['high'], digits)})"


def _seeds(count: int) -> str:
    if count == 1:
        return ""
    return f", {count} seeds"


def _people(rows: Sequence[Mapping[str, Any]]) -> str:
    """Number of clients of the cells of a line, with the number of trainings; ranges where cells differ."""
    counts = {int(row["n"]) for row in rows if "n" in row}
    seeds = {int(row["seeds"]) for row in rows if "seeds" in row}
    if not counts:
        return ""
    people = str(min(counts))
    if len(counts) > 1:
        people = f"{min(counts)} to {max(counts)}"
    if len(seeds) > 1:
        return f"{people}, {min(seeds)} to {max(seeds)} seeds"
    return people + _seeds(max(seeds))
