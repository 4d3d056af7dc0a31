"""Sections of a report: results that answer the same question, their tables, and the meaning of their metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fedleak.core.metric_table import METRICS, meanings, metric
from fedleak.evaluation.answers import Answer, leading, recorded_answers
from fedleak.evaluation.judging import is_judged
from fedleak.evaluation.labels import Label
from fedleak.evaluation.persons import CLIENT
from fedleak.evaluation.result_names import ATTACKS, DATA, MEANING, UPDATES
from fedleak.evaluation.scores import differing
from fedleak.reports.answer_words import bits_sentence, numbers, verdict_on
from fedleak.reports.tables import (
    Table,
    attacks_first,
    best_first,
    column_of,
    difference_table,
    long_table,
    wide_table,
    with_measured,
)
from fedleak.reports.text_table import text_table

BASELINES = "baselines, bounds and models"
_MOST_ROWS = 40
"""Largest number of rows of a table of further metrics that is not folded."""


@dataclass(frozen=True)
class Section:
    """Answers to one question.

    Attributes:
        title: the question.
        tables: its tables, the main metric's first.
        answer: in words, how well the best attack answers it; empty if no attack does.
        question: name of the question in the results; None for a section without.
    """

    title: str
    tables: Sequence[Table]
    answer: str = ""
    question: str | None = None


def by_question(results: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Title and rows with a value of each question, in the order of the results.

    Bounds and models, which answer no question, stand with the questions whose metrics they have, or else at the end.
    """
    results = results[results["mean"].notna()]
    references = (results["role"] == "reference").to_numpy()
    keys = results["question"].fillna("")
    found, used = [], set[int]()
    for question in dict.fromkeys(keys[~references]):
        own = (keys == question).to_numpy() & ~references
        near = references & results["metric"].isin(results["metric"][own]).to_numpy()
        used |= set(results.index[near])
        rows = results[own]
        inferred = [text for text in rows["tells"][rows["role"].isin(ATTACKS)] if text] or [*rows["tells"], ""]
        title = f"Can the server infer {inferred[0]}?" if inferred[0] else "Results"
        found.append((title, results[own | near]))
    rest = results[references & ~results.index.isin(used)]
    return [*found, ("Bounds and models", rest)] if len(rest) else found


def metrics_of(results: pd.DataFrame) -> list[str]:
    """Metrics of some results: those that judge attacks, then the others, in the table's order."""
    given = list(dict.fromkeys(results["metric"]))
    judging = set(results["metric"][is_judged(results)])
    order = [*METRICS, *given]
    return sorted(given, key=lambda name: (name not in judging, order.index(name)))


def sections(results: pd.DataFrame) -> list[Section]:
    """Sections of results, a question each, in the order of `fedleak.reports.questions`.

    A table of several data sets or settings says so in its rows.
    """
    # The first answer of a question is that of the data set and run on which it goes furthest.
    answers: dict[str | None, Answer] = {}
    for answer in leading(recorded_answers(results)):
        answers.setdefault(answer.question, answer)
    order = list(answers)
    parts = [(question_of(rows), title, rows) for title, rows in by_question(with_measured(results))]
    parts.sort(key=lambda part: order.index(part[0]) if part[0] in order else len(order))
    return [
        Section(title, _tables(rows, f"-{place}" if place else ""), _in_words(answers.get(question)), question)
        for place, (question, title, rows) in enumerate(parts)
    ]


def _in_words(answer: Answer | None) -> str:
    if answer is None:
        return ""
    return f"{bits_sentence(answer.bits)} {verdict_on(answer)} {numbers(answer)}".strip()


def question_of(rows: pd.DataFrame) -> str | None:
    """Name of the question of a section's rows; None for rows without."""
    return next(iter(rows["question"].dropna()), None)


def difference_tables(differences: pd.DataFrame) -> list[Table]:
    """The table of paired differences, none without a difference."""
    if differences.empty:
        return []
    caption = (
        "Difference between each attack and the best baseline, and between an attack of this project and the best"
        " published attack, on the same clients and seeds, with 95% interval; ratio is that of the two means."
    )
    return [Table("differences", caption, difference_table(differences), folded=len(differences) > 12)]


def detail_sections(
    details: Mapping[str, Sequence[Mapping[str, Any]]],
    clients: Mapping[int, str] | None = None,
    labels: Mapping[str, Label] | None = None,
) -> list[Section]:
    """A section per attack that has a table of its own, without empty columns.

    Args:
        details: rows by printed label.
        clients: labels of clients by number; None for the numbers.
        labels: parts of the printed labels that name more than an attack, see
            `fedleak.evaluation.evaluation.Evaluation.labels`.
    """
    found = []
    for printed, rows in details.items():
        table = pd.DataFrame(list(rows), dtype=object).dropna(axis="columns", how="all")
        if CLIENT in table and clients is not None:
            table[CLIENT] = table[CLIENT].map(lambda number: clients.get(number, number))
        title, caption = f"Details of {printed}", f"{len(table)} rows of {printed}."
        label = (labels or {}).get(printed, Label(printed))
        if label.attack == UPDATES:
            title, caption = f"What the updates{label.where} look like", MEANING
        found.append(Section(title, [Table(f"details-{printed}", caption, table, folded=len(table) > 12)]))
    return found


def text_tables(shown_sections: Sequence[Section]) -> str:
    """Tables of sections for a terminal."""
    blocks = []
    for section in shown_sections:
        shown = [aligned(table) for table in section.tables if not table.folded]
        blocks.append("\n".join(line for lines in [[section.title], *shown] for line in [*lines, ""]))
    return "\n".join(blocks).rstrip()


def aligned(table: Table) -> list[str]:
    """Lines of a table for a terminal."""
    lines = text_table([*table.rows], table.texts.to_numpy().tolist(), table.numeric)
    if table.attacks not in (None, 0, len(table.rows)):
        lines.insert(2 + (table.attacks or 0), f"{BASELINES}:")
    return lines


def _tables(rows: pd.DataFrame, suffix: str) -> list[Table]:
    """Table of the main metric, as a whole too if it is wide, and table of the further metrics."""
    first, *rest = metrics_of(rows)
    main = rows[rows["metric"] == first]
    column = column_of(main)
    main, attacks = attacks_first(best_first(main, first) if column is None else main)
    cells = long_table(main).drop(columns="metric").rename(columns={"mean": first})
    found = [Table(f"{first}{suffix}", _caption(main, first), cells, attacks)]
    if column is not None:
        papers = ", with the paper's value in parentheses" if main["paper"].notna().any() else ""
        caption = f"{found[0].caption} A cell is the mean and, in brackets, its 95% interval{papers}."
        whole = f"All cells of {first}, with intervals."
        all_cells = Table(f"{first}-cells{suffix}", whole, cells, attacks, folded=True)
        found = [Table(f"{first}{suffix}", caption, *_wide(main, column)), all_cells]
    if rest:
        others = rows[rows["metric"] != first]
        order = [*dict.fromkeys(main["attack"]), *dict.fromkeys(others["attack"])]
        others = others.sort_values("metric", key=lambda one: one.map(rest.index), kind="stable")
        others, _ = attacks_first(others.sort_values("attack", key=lambda one: one.map(order.index), kind="stable"))
        wide, count = _wide(others, None if column is None else column_of(others))
        names = f"metric, {rest[0]}" if len(rest) == 1 else f"metrics, {', '.join(rest)}"
        caption = f"Further {names}: mean and, in brackets, its 95% interval. {' '.join(meanings(rest))}".rstrip()
        found.append(Table(f"further-metrics{suffix}", caption, wide, count, folded=len(wide) > _MOST_ROWS))
    return found


def _caption(rows: pd.DataFrame, name: str) -> str:
    """What the table of a metric shows, and what the metric means."""
    where = f"{rows[DATA].iloc[0]}: mean" if DATA in rows and "data" not in differing(rows) else "Mean"
    parts = [f"{where} {name} over clients; n is the number of clients.", *meanings([name])]
    parts += ["Lower is more leakage."] if metric(name).leak and metric(name).lower_is_better else []
    if ((rows["role"] == "ours") & rows["paper"].notna()).any():
        parts.append("Next to an attack of this project, the paper's value is that of the paper's attack.")
    return " ".join(parts)


def _wide(rows: pd.DataFrame, column: str | None) -> tuple[pd.DataFrame, int]:
    """Wide table, and the number of its rows that are attacks; `rows` has attacks first."""
    whole = wide_table(rows, column)
    return whole, int(whole["attack"].isin(rows["attack"][rows["role"].isin(ATTACKS)]).sum())
