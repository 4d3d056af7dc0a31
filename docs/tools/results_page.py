"""Published results: docs/results.md and docs/start/what-leaked.md, templates filled with committed numbers.

``docs/results/NAME.json`` is the results.json of ``fedleak reproduce NAME``. The templates are
``page.md.j2`` and ``what_leaked.md.j2`` there. No number is typed: a cell that a file lacks is an error.

    python -m docs.tools.results_page add runs/NAME ...   # keep the results of a run
    python -m docs.tools.results_page                     # write both documents
"""

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from docs.tools.published_table import PublishedTable
from fedleak.core.errors import InputError, require
from fedleak.core.io.files import write_whole
from fedleak.core.provenance import published
from fedleak.evaluation.run import read_published
from fedleak.evaluation.stored_run import read_results
from fedleak.reports.figures.below_bounds import below_bounds
from fedleak.reports.figures.figure_data import FigureData
from fedleak.reports.figures.line_styles import line_styles

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "results"
PAGE = ROOT / "docs" / "results.md"
WHAT_LEAKED = ROOT / "docs" / "start" / "what-leaked.md"
TEMPLATE = "page.md.j2"
_WHAT_LEAKED_TEMPLATE = "what_leaked.md.j2"
_OLD_PLACE = re.compile(r"\bconfigs/paper/(\w+)\.yaml\b")
"""Path of a table in the command of an earlier version; its name is enough, then as now."""
_SAME_IN_EVERY_ROW = ("threat_model", "tells", "unbounded", "name", "variant", "with_prior")
"""Facts about an attack that a published file leaves out, because each of its rows would repeat them."""


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
    svg_files = {}
    template = (folder / TEMPLATE).read_text(encoding="utf-8")
    for name, table in _tables(folder).items():
        if f"(figures/{name}.svg)" not in template:
            continue
        results = table.run.results
        rows = results[results["metric"] == "auc"]
        for drawing in below_bounds(FigureData(rows, "auc", results, line_styles(results))):
            svg_files[f"{name}.svg"] = drawing.file("svg")
    return svg_files


def _tables(folder: Path) -> dict[str, PublishedTable]:
    return {path.stem: PublishedTable(path.stem, read_published(path)) for path in sorted(folder.glob("*.json"))}


def _filled(folder: Path, template: str, tables: Mapping[str, PublishedTable]) -> str:
    """A template filled with the tables, each under its name."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    wide = [f"`{name}`" for name, table in tables.items() if table.is_wide]
    text = environment.get_template(template).render(
        **tables,
        evidence=lambda: _evidence(tables),
        with_wide_intervals=lambda: ", ".join(wide),
    )
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
    is_of_commit = run.commit is not None and not run.commit.endswith("+")
    require(is_of_commit, "results of a commit", f"commit {run.commit}", "Commit the changes and run the table again.")
    content = run.plain()
    for name in ("results", "differences"):
        content[name] = [_short(row) for row in content[name] if not metrics or row["metric"] in metrics]
    content["command"] = published(content["command"])
    # A line for each row, so that a version control system shows which numbers changed.
    fields = []
    for key, value in content.items():
        if key in ("causes", "gate", "details"):
            continue
        text = _by_line(value) if isinstance(value, list) and value else json.dumps(value)
        fields.append(f"{json.dumps(key)}: {text}")
    path = folder / f"{run.experiment}.json"
    write_whole(path, ("{\n" + ",\n".join(fields) + "\n}\n").encode())
    return path


def _by_line(entries: list[Any]) -> str:
    return "[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]"


def _short(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with rounded numbers, without what is the same in every row of its attack."""
    short = {key: _rounded(value) for key, value in row.items() if key not in _SAME_IN_EVERY_ROW}
    # The column stays, without a value.
    if "threat_model" in row:
        short["threat_model"] = None
    return short


def _rounded(entry: Any) -> Any:
    """An entry with six digits of each number."""
    if isinstance(entry, dict):
        return {key: _rounded(value) for key, value in entry.items()}
    if isinstance(entry, list):
        return [_rounded(value) for value in entry]
    if isinstance(entry, float):
        return float(f"{entry:.6g}")
    return entry


def _evidence(tables: Mapping[str, PublishedTable]) -> str:
    """Markdown table of where the numbers come from."""
    rows = [["table", "command", "commit", "data (SHA-256)", "minutes", "machine"], ["---"] * 6]
    for table in tables.values():
        run = table.run
        # Several data sets stand as words of one name, and so do their hashes.
        hashes = zip(run.data["name"].split(), run.data["sha256"].split(), strict=False)
        data = ", ".join(f"{name} `{sha256[:12]}`" for name, sha256 in hashes)
        command = _OLD_PLACE.sub(r"\1", " ".join(run.command.split()))
        commit = (run.commit or "")[:12]
        row = [
            f"[{table.name}](results/{table.name}.json)",
            f"`{command}`",
            f"`{commit}`",
            data,
            table.minutes,
            run.hardware,
        ]
        rows.append(row)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the documents, or keeps the results of runs."""
    parser = argparse.ArgumentParser(prog="python -m docs.tools.results_page", description="Page of published results.")
    commands = parser.add_subparsers(dest="command", required=False)
    keep = commands.add_parser("add", help="keep the results of runs")
    keep.add_argument("runs", nargs="+", type=Path)
    keep.add_argument("--metrics", nargs="*", default=())
    options = parser.parse_args(arguments)
    if options.command == "add":
        for directory in options.runs:
            print(add(directory, options.metrics))
    else:
        files = {PAGE: page().encode(), WHAT_LEAKED: what_leaked().encode()}
        files |= {PAGE.parent / "figures" / name: content for name, content in figures().items()}
        for path, content in files.items():
            write_whole(path, content)
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        raise SystemExit(str(error)) from None
