"""Published results: docs/results.md and docs/start/what-leaked.md, templates filled with committed numbers.

``docs/results/NAME.json`` is the results.json of ``fedleak reproduce NAME``. The templates are
``page.md.j2`` and ``what_leaked.md.j2`` there. No number is typed: a cell that a file lacks is an error.

    python -m docs.tools.results_page add runs/NAME ...   # keep the results of a run
    python -m docs.tools.results_page                     # write both documents
"""

import argparse
import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from fedleak.core.errors import InputError, require
from fedleak.core.io.files import write_whole
from fedleak.core.provenance import published
from fedleak.evaluation.result_names import LUCK
from fedleak.evaluation.run import Run, read_published
from fedleak.evaluation.scores import SETTING
from fedleak.evaluation.stored_run import read_results
from fedleak.evaluation.summary import RATIO
from fedleak.reports.figures.below_bounds import below_bounds
from fedleak.reports.figures.figure_data import FigureData
from fedleak.reports.figures.line_styles import line_styles
from fedleak.reports.tables import is_single

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "results"
PAGE, WHAT_LEAKED = ROOT / "docs" / "results.md", ROOT / "docs" / "start" / "what-leaked.md"
TEMPLATE, _WHAT_LEAKED_TEMPLATE = "page.md.j2", "what_leaked.md.j2"
Where = Mapping[str, Any]
_OLD_PLACE = re.compile(r"\bconfigs/paper/(\w+)\.yaml\b")
"""Path of a table in the command of an earlier version; its name is enough, then as now."""
_SAME_IN_EVERY_ROW = ("threat_model", "tells", "unbounded", "name", "variant", "with_prior")
"""Facts about an attack that a published file leaves out, because each of its rows would repeat them."""


@dataclasses.dataclass
class Published:
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
        return "continued" if self.run.read_back else f"{self.run.seconds / 60:.0f}"

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
            rows = rows[[str(own) == str(value) for own in rows[SETTING + name]]]
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
            columns = {str(value): {columns[0]: value} for value in columns[1]}
        rows = [["", *columns, *(["interval within"] if intervals else []), "n"]]
        for label, line in lines.items():
            own = {"attack": line} if isinstance(line, str) else dict(line)
            cells = [
                [
                    self._entry(metric, {**where, **own, **column, **({} if each is None else {each[0]: value})})
                    for value in (each[1] if each else [None])
                ]
                for column in columns.values()
            ]
            texts = [" / ".join(_text(entry, digits) for entry in cell) if any(cell) else "" for cell in cells]
            whole = [entry for cell in cells for entry in cell if entry is not None]
            widths = [(entry["high"] - entry["low"]) / 2 for entry in whole if "n" in entry and not is_single(entry)]
            widths = [width for width in widths if not math.isnan(width)]
            width = _fixed(math.ceil(round(max(widths) * 10**digits, 6)) / 10**digits, digits) if widths else ""
            width = "" if "against" in own else width
            rows.append([label, *texts, *([width] if intervals else []), _people(whole)])
        rows.insert(1, ["---"] * len(rows[0]))
        return "\n".join("|" + "|".join(f" {text} " if text else " " for text in row) + "|" for row in rows)

    def _entry(self, metric: str, where: dict[str, Any]) -> dict[str, Any] | None:
        """Numbers of one cell; None if the paper has no value or the line is not in this column."""
        own = dict(where)
        attack, paper, against = own.pop("attack"), own.pop("paper", False), own.pop("against", None)
        if own.pop("absent", False):
            return None
        if against is not None:
            return self._ratio(attack, against, metric, own)
        row = self._cell(attack, metric, own)
        if not paper:
            return row
        return None if math.isnan(row["paper"]) else {"mean": row["paper"]}

    def _ratio(self, attack: str, against: str, metric: str, setting: Where) -> dict[str, Any]:
        row = self._difference(attack, against, metric, setting)
        numbers = {new: row[old] for new, old in zip(("mean", "low", "high"), RATIO, strict=True)}
        return {**numbers, "n": row["n"], "seeds": row["seeds"], "ratio": True}

    def _difference(self, attack: str, against: str, metric: str, setting: Where) -> dict[str, Any]:
        table = self.run.differences
        found = table[(table["attack"] == attack) & (table["metric"] == metric)]
        if against == "published":
            results = self.run.results
            found = found[found["against"].isin(results.loc[results["role"] == "published", "attack"])]
        else:
            found = found[found["against"] == against]
        return self._only(found, f"difference of {attack} and {against} in {metric}", setting)

    def _cell(self, attack: str, metric: str, setting: Where) -> dict[str, Any]:
        results = self.run.results
        found = results[(results["attack"] == attack) & (results["metric"] == metric)]
        return self._only(found, f"{metric} of {attack}", setting)

    def _only(self, rows: pd.DataFrame, what: str, setting: Where) -> dict[str, Any]:
        for key, value in setting.items():
            rows = rows[[str(own) == str(value) for own in rows[SETTING + key]]] if SETTING + key in rows else rows[:0]
        found = f"{len(rows)} in {self.name}"
        require(len(rows) == 1, f"one cell with the {what}, {dict(setting)}", found, "Name its settings, or run it.")
        return {str(key): value for key, value in rows.iloc[0].items()}


def page(folder: Path = FOLDER) -> str:
    """The page.

    Raises:
        InputError: a cell is missing, or the template does not say whether a table compares with the paper.
    """
    tables = _tables(folder)
    text = _filled(folder, TEMPLATE, tables)
    silent = [name for name, table in tables.items() if table.verdict is None]
    require(not silent, "a table that says whether it compares with the paper", silent, f"Say it in {TEMPLATE}.")
    return text


def what_leaked(folder: Path = FOLDER) -> str:
    """Page with one number of each attack, of `folder`."""
    return _filled(folder, _WHAT_LEAKED_TEMPLATE, _tables(folder))


def figures(folder: Path = FOLDER) -> dict[str, bytes]:
    """SVG of each table that the page shows as a figure, by file name: the attacks below their bound."""
    found = {}
    template = (folder / TEMPLATE).read_text(encoding="utf-8")
    for name, table in _tables(folder).items():
        if f"(figures/{name}.svg)" not in template:
            continue
        results = table.run.results
        rows = results[results["metric"] == "auc"]
        for drawing in below_bounds(FigureData(rows, "auc", results, line_styles(results))):
            found[f"{name}.svg"] = drawing.file("svg")
    return found


def _tables(folder: Path) -> dict[str, Published]:
    return {path.stem: Published(path.stem, read_published(path)) for path in sorted(folder.glob("*.json"))}


def _filled(folder: Path, template: str, tables: Mapping[str, Published]) -> str:
    loader, undefined = jinja2.FileSystemLoader(folder), jinja2.StrictUndefined
    environment = jinja2.Environment(loader=loader, undefined=undefined, keep_trailing_newline=True, autoescape=False)
    functions = {
        "evidence": lambda: _evidence(tables),
        "with_wide_intervals": lambda: ", ".join(f"`{name}`" for name, table in tables.items() if table.is_wide),
    }
    text = environment.get_template(template).render(**tables, **functions)
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def add(directory: Path, metrics: Sequence[str] = (), *, folder: Path = FOLDER) -> Path:
    """Keeps the results of a run, one line each, without what the configuration says again, and details of attacks.

    Args:
        directory: folder of a finished ``fedleak reproduce``.
        metrics: metrics to keep, all by default.
        folder: folder of the published results.

    Raises:
        InputError: the run's code is not a commit.
    """
    run = read_results(directory)
    clean = run.commit is not None and not run.commit.endswith("+")
    require(clean, "results of a commit", f"commit {run.commit}", "Commit the changes and run the table again.")
    content = run.plain()
    for name in ("results", "differences"):
        content[name] = [_short(entry) for entry in content[name] if not metrics or entry["metric"] in metrics]
    content["command"] = published(content["command"])
    lines = [
        f"{json.dumps(key)}: " + (_by_line(value) if isinstance(value, list) and value else json.dumps(value))
        for key, value in content.items()
        if key not in ("causes", "gate", "details")
    ]
    path = folder / f"{run.experiment}.json"
    write_whole(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    return path


def _by_line(entries: list[Any]) -> str:
    return "[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]"


def _short(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with rounded numbers, without what is the same in every row of its attack."""
    short = {key: _rounded(value) for key, value in row.items() if key not in _SAME_IN_EVERY_ROW}
    return short | ({"threat_model": None} if "threat_model" in row else {})


def _rounded(entry: Any) -> Any:
    if isinstance(entry, dict):
        return {key: _rounded(value) for key, value in entry.items()}
    if isinstance(entry, list):
        return [_rounded(value) for value in entry]
    return float(f"{entry:.6g}") if isinstance(entry, float) else entry


def _evidence(tables: Mapping[str, Published]) -> str:
    """Markdown table of where the numbers come from."""
    rows = [["table", "command", "commit", "data (SHA-256)", "minutes", "machine"], ["---"] * 6]
    for table in tables.values():
        run = table.run
        hashes = zip(run.data["name"].split(), run.data["sha256"].split(), strict=False)
        data = ", ".join(f"{name} `{value[:12]}`" for name, value in hashes)
        command = _OLD_PLACE.sub(r"\1", " ".join(run.command.split()))
        file, commit = f"[{table.name}](results/{table.name}.json)", (run.commit or "")[:12]
        rows.append([file, f"`{command}`", f"`{commit}`", data, table.minutes, run.hardware])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _fixed(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def _text(entry: dict[str, Any] | None, digits: int) -> str:
    if entry is None:
        return "-"
    mean = _fixed(entry["mean"], digits)
    return f"{mean} ({_fixed(entry['low'], digits)} to {_fixed(entry['high'], digits)})" if "ratio" in entry else mean


def _seeds(count: int) -> str:
    return "" if count == 1 else f", {count} seeds"


def _people(rows: Sequence[Mapping[str, Any]]) -> str:
    counts, seeds = ({int(row[name]) for row in rows if name in row} for name in ("n", "seeds"))
    if not counts:
        return ""
    people = f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    return people + (_seeds(max(seeds)) if len(seeds) == 1 else f", {min(seeds)} to {max(seeds)} seeds")


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the documents, or keeps the results of runs."""
    parser = argparse.ArgumentParser(prog="python -m docs.tools.results_page", description="Page of published results.")
    commands = parser.add_subparsers(dest="command", required=False)
    keep = commands.add_parser("add", help="keep the results of runs")
    keep.add_argument("runs", nargs="+", type=Path)
    keep.add_argument("--metrics", nargs="*", default=())
    given = parser.parse_args(arguments)
    if given.command == "add":
        for directory in given.runs:
            print(add(directory, given.metrics))
    else:
        written = {PAGE: page().encode(), WHAT_LEAKED: what_leaked().encode()}
        written |= {PAGE.parent / "figures" / name: content for name, content in figures().items()}
        for path, content in written.items():
            write_whole(path, content)
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        raise SystemExit(str(error)) from None
