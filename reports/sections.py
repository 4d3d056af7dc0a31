"""Sections of a report: the tables of each question, with the meaning of their metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from evaluation.scores import differing
from protocol.metrics import meanings, metric
from reports.aligned import aligned
from reports.questions import by_question, metrics_of
from reports.tables import (
    DATA,
    Table,
    attacks_first,
    best_first,
    column_of,
    difference_table,
    long_table,
    wide_table,
)

BASELINES = "baselines, bounds and models"


@dataclass(frozen=True)
class Section:
    """Answers to one question.

    Attributes:
        title: the question.
        tables: its tables, the main metric's first.
    """

    title: str
    tables: Sequence[Table]


def sections(results: pd.DataFrame) -> list[Section]:
    """Sections of results, a question each; a table of several data sets or settings says so in its rows."""
    found = by_question(results[results["mean"].notna()])
    return [Section(title, _tables(rows, f"-{place}" if place else "")) for place, (title, rows) in enumerate(found)]


def difference_tables(differences: pd.DataFrame) -> list[Table]:
    """The table of paired differences, none without a difference."""
    if differences.empty:
        return []
    caption = (
        "Difference between each attack and the best baseline, and between an attack of this project and the best"
        " published attack, on the same clients and seeds, with 95% interval; ratio is that of the two means."
    )
    return [Table("differences", caption, difference_table(differences), folded=len(differences) > 12)]


def detail_sections(details: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Section]:
    """A section per attack that has a table of its own, without empty columns.

    Args:
        details: rows by label, see `attacks.estimates.Scores.details`.
    """
    found = []
    for label, rows in details.items():
        table = pd.DataFrame.from_records(list(rows)).dropna(axis="columns", how="all")
        caption = f"{len(table)} rows of {label}."
        found.append(
            Section(f"Details of {label}", [Table(f"details-{label}", caption, table, folded=len(table) > 12)])
        )
    return found


def text_tables(results: pd.DataFrame) -> str:
    """Tables of results for a terminal, by question."""
    blocks = []
    for section in sections(results):
        for table in section.tables:
            if not table.folded:
                lines = aligned([*table.rows], table.texts.to_numpy().tolist(), table.numeric)
                if table.attacks not in (None, 0, len(table.rows)):
                    lines.insert(2 + (table.attacks or 0), f"{BASELINES}:")
                blocks.append("\n".join([section.title, *lines]))
    return "\n\n".join(blocks)


def _tables(rows: pd.DataFrame, suffix: str) -> list[Table]:
    names = metrics_of(rows)
    main, others = rows[rows["metric"] == names[0]], rows[rows["metric"] != names[0]]
    main, attacks = attacks_first(best_first(main, names[0]) if column_of(main) is None else main)
    where = _shared(rows)
    about = f"{where}mean {names[0]} over clients; n is the number of clients. {' '.join(_about(names[:1]))}".strip()
    about = about[0].upper() + about[1:] if not where else about
    table = long_table(main).drop(columns="metric").rename(columns={"mean": names[0]})
    column = column_of(main)
    if column is None:
        found = [Table(f"{names[0]}{suffix}", about, table, attacks)]
    else:
        wide, count = _wide(main, column)
        how = " A cell is the mean ± half of the 95% interval, with the paper's value in parentheses."
        how = how if main["paper"].notna().any() else how.partition(",")[0] + "."
        found = [Table(f"{names[0]}{suffix}", about + how, wide, count)]
        whole = Table(
            f"{names[0]}-cells{suffix}", f"All cells of {names[0]}, with intervals.", table, attacks, folded=True
        )
        found.append(whole)
    if len(others):
        rest = metrics_of(others)
        others, _ = attacks_first(others.sort_values("metric", key=lambda one: one.map(rest.index), kind="stable"))
        wide, count = _wide(others, column_of(others) if column is not None else None)
        caption = f"Further metrics: mean ± half of the 95% interval. {' '.join(meanings(rest))}"
        found.append(Table(f"further-metrics{suffix}", caption, wide, count, folded=len(wide) > 40))
    return found


def _wide(rows: pd.DataFrame, column: str | None) -> tuple[pd.DataFrame, int]:
    """Wide table, and the number of its rows that are attacks; `rows` has attacks first."""
    whole = wide_table(rows, column)
    own, _ = attacks_first(rows)
    return whole, int(whole["attack"].isin(own["attack"][own["role"].isin(("ours", "published"))]).sum())


def _shared(rows: pd.DataFrame) -> str:
    """Start of a caption: the data set, if all rows have the same."""
    return f"{rows[DATA].iloc[0]}: " if DATA in rows and "data" not in differing(rows) else ""


def _about(names: Sequence[str]) -> list[str]:
    lower = ["Lower is more leakage." for name in names if metric(name).leak and metric(name).lower_is_better]
    return [*meanings(names), *lower]
