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
from fedleak.evaluation.result_names import ATTACKS, DATA, LINTED, MEANING, MESSAGES, UPDATES
from fedleak.evaluation.scores import differing
from fedleak.reports.answer_words import bits_sentence, numbers, verdict_on
from fedleak.reports.tables import (
    ReportTable,
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
_MOST_SHORT_ROWS = 12
"""The same of a table of differences, and of an attack's own table, which fewer people read."""


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
    tables: Sequence[ReportTable]
    answer: str = ""
    question: str | None = None


def by_question(results: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Title and rows with a value of each question, in the order of the results.

    Bounds and models, which answer no question, stand with the questions whose metrics they have, or else at the end.
    """
    results = results[results["mean"].notna()]
    references = (results["role"] == "reference").to_numpy()
    keys = results["question"].fillna("")
    titled_rows = []
    used: set[int] = set()
    for question in dict.fromkeys(keys[~references]):
        of_question = (keys == question).to_numpy() & ~references
        near = references & results["metric"].isin(results["metric"][of_question]).to_numpy()
        used.update(results.index[near])
        rows = results[of_question]
        # What is inferred in an attack's words, else in those of the first baseline.
        inferred = [text for text in rows["tells"][rows["role"].isin(ATTACKS)] if text]
        if not inferred:
            inferred = [*rows["tells"], ""]
        title = f"Can the server infer {inferred[0]}?" if inferred[0] else "Results"
        titled_rows.append((title, results[of_question | near]))
    rest = results[references & ~results.index.isin(used)]
    if len(rest):
        titled_rows.append(("Bounds and models", rest))
    return titled_rows


def metrics_of(results: pd.DataFrame) -> list[str]:
    """Metrics of some results: those that judge attacks, then the others, in the table's order."""
    present = list(dict.fromkeys(results["metric"]))
    judging = set(results["metric"][is_judged(results)])
    order = [*METRICS, *present]
    return sorted(present, key=lambda name: (name not in judging, order.index(name)))


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
    # Questions without an answer, such as those of models, come last.
    parts.sort(key=lambda part: order.index(part[0]) if part[0] in order else len(order))
    question_sections = []
    for position, (question, title, rows) in enumerate(parts):
        section = Section(
            title,
            tables=_tables(rows, suffix=f"-{position}" if position else ""),
            answer=_in_words(answers.get(question)),
            question=question,
        )
        question_sections.append(section)
    return question_sections


def _in_words(answer: Answer | None) -> str:
    if answer is None:
        return ""
    return f"{bits_sentence(answer.bits)} {verdict_on(answer)} {numbers(answer)}".strip()


def question_of(rows: pd.DataFrame) -> str | None:
    """Name of the question of a section's rows; None for rows without."""
    return next(iter(rows["question"].dropna()), None)


def difference_tables(differences: pd.DataFrame) -> list[ReportTable]:
    """The table of paired differences, none without a difference."""
    if differences.empty:
        return []
    caption = (
        "Difference between each attack and the best baseline, and between an attack of this project and the best"
        " published attack, on the same clients and seeds, with 95% interval; ratio is that of the two means."
    )
    folded = len(differences) > _MOST_SHORT_ROWS
    return [ReportTable("differences", caption, difference_table(differences), folded=folded)]


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
    details_of_attacks = []
    for printed, rows in details.items():
        table = pd.DataFrame(list(rows), dtype=object).dropna(axis="columns", how="all")
        if CLIENT in table and clients is not None:
            table[CLIENT] = table[CLIENT].map(lambda number: clients.get(number, number))
        title = f"Details of {printed}"
        caption = f"{len(table)} rows of {printed}."
        label = (labels or {}).get(printed, Label(printed))
        if label.attack == UPDATES:
            title = f"What the updates{label.where} look like"
            caption = MEANING
        elif label.attack == MESSAGES:
            title = f"What the messages{label.where} hold beside an update"
            caption = LINTED
        folded = len(table) > _MOST_SHORT_ROWS
        details_of_attacks.append(Section(title, [ReportTable(f"details-{printed}", caption, table, folded=folded)]))
    return details_of_attacks


def text_tables(shown_sections: Sequence[Section]) -> str:
    """Tables of sections for a terminal."""
    blocks = []
    for section in shown_sections:
        block = [section.title, ""]
        for table in section.tables:
            if not table.folded:
                block += [*aligned(table), ""]
        blocks.append("\n".join(block))
    return "\n".join(blocks).rstrip()


def aligned(table: ReportTable) -> list[str]:
    """Lines of a table for a terminal."""
    text_lines = text_table([*table.rows], table.texts.to_numpy().tolist(), table.numeric)
    # Below the header, its rule and the attacks; no line where all rows are attacks, or none are.
    if table.attacks is not None and table.attacks not in (0, len(table.rows)):
        text_lines.insert(2 + table.attacks, f"{BASELINES}:")
    return text_lines


def _tables(rows: pd.DataFrame, suffix: str) -> list[ReportTable]:
    """Table of the main metric, as a whole too if it is wide, and table of the further metrics."""
    first, *rest = metrics_of(rows)
    main = rows[rows["metric"] == first]
    column = column_of(main)
    # A wide table has the rows of the results; a row per cell can have the best attack first.
    if column is None:
        main = best_first(main, first)
    main, attacks = attacks_first(main)
    cells = long_table(main).drop(columns="metric").rename(columns={"mean": first})
    caption = _caption(main, first)
    if column is None:
        tables = [ReportTable(f"{first}{suffix}", caption, cells, attacks)]
    else:
        caption += " A cell is the mean and, in brackets, its 95% interval"
        if main["paper"].notna().any():
            caption += ", with the paper's value in parentheses"
        caption_of_cells = f"All cells of {first}, with intervals."
        tables = [
            ReportTable(f"{first}{suffix}", f"{caption}.", *_wide(main, column)),
            ReportTable(f"{first}-cells{suffix}", caption_of_cells, cells, attacks, folded=True),
        ]
    if rest:
        tables.append(_further_metrics(rows, main, rest, wide=column is not None, suffix=suffix))
    return tables


def _further_metrics(
    rows: pd.DataFrame, main: pd.DataFrame, names: Sequence[str], *, wide: bool, suffix: str
) -> ReportTable:
    """Table of the metrics after the main one, its attacks in the order of the main metric's rows."""
    further = rows[rows["metric"].isin(names)]
    order = [*dict.fromkeys(main["attack"]), *dict.fromkeys(further["attack"])]
    # Sorting is stable, so that within an attack its metrics stay in their order.
    further = further.sort_values("metric", key=lambda metrics: metrics.map(names.index), kind="stable")
    further = further.sort_values("attack", key=lambda attacks: attacks.map(order.index), kind="stable")
    further, _ = attacks_first(further)
    cells, count = _wide(further, column_of(further) if wide else None)
    title = f"metric, {names[0]}" if len(names) == 1 else f"metrics, {', '.join(names)}"
    caption = f"Further {title}: mean and, in brackets, its 95% interval. {' '.join(meanings(names))}".rstrip()
    return ReportTable(f"further-metrics{suffix}", caption, cells, count, folded=len(cells) > _MOST_ROWS)


def _caption(rows: pd.DataFrame, name: str) -> str:
    """What the table of a metric shows, and what the metric means."""
    where = f"{rows[DATA].iloc[0]}: mean" if DATA in rows and "data" not in differing(rows) else "Mean"
    parts = [f"{where} {name} over clients; n is the number of clients.", *meanings([name])]
    if metric(name).leak and metric(name).lower_is_better:
        parts.append("Lower is more leakage.")
    # An attack of this project has no paper of its own; its value is that of a published attack it stands next to.
    if ((rows["role"] == "ours") & rows["paper"].notna()).any():
        parts.append("Next to an attack of this project, the paper's value is that of the paper's attack.")
    return " ".join(parts)


def _wide(rows: pd.DataFrame, column: str | None) -> tuple[pd.DataFrame, int]:
    """Wide table, and the number of its rows that are attacks; `rows` has attacks first."""
    table = wide_table(rows, column)
    attacks = rows["attack"][rows["role"].isin(ATTACKS)]
    return table, int(table["attack"].isin(attacks).sum())
