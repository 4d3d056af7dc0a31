"""Tables of what changed between runs, for pages and terminals."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedleak.core.metric_table import metric
from fedleak.evaluation.change import COLUMNS
from fedleak.evaluation.changes import Changes
from fedleak.evaluation.scores import SETTING, describe, differing, from_records, number, records, setting_of
from fedleak.reports.metric_words import number_in_words, value_in_words
from fedleak.reports.tables import ReportTable
from fedleak.reports.text_table import text_table

_MOST_ROWS = 12
"""Largest number of rows that are not folded."""


def stored_changes(changes: Changes) -> dict[str, Any]:
    """What changed, as ``results.json`` holds it: names of the runs, sentences and rows, with None for infinity."""
    rows = [{name: _without_infinity(value) for name, value in change.row().items()} for change in changes.rows]
    return {
        "reference": changes.reference,
        "run": changes.run,
        "notes": list(changes.notes),
        "rows": rows,
    }


def _without_infinity(value: Any) -> Any:
    """The value, None in place of a number that JSON cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def change_rows(compared: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """All rows of comparisons, with the names of the runs in ``of_run`` and ``of_reference``."""
    rows: list[dict[str, Any]] = []
    for comparison in compared:
        names = {"of_reference": comparison["reference"], "of_run": comparison["run"]}
        rows += [{**names, **row} for row in comparison["rows"]]
    # Comparisons may have different settings: the table has the columns of all, in the order of their first row.
    settings = dict.fromkeys(name for row in rows for name in row if name.startswith(SETTING))
    return from_records(rows, ["of_reference", "of_run", *COLUMNS, *settings])


def change_tables(compared: Mapping[str, Any], position: int = 0) -> list[ReportTable]:
    """Tables of one comparison: of the best attack of each question, and of every attack.

    Those of the comparison at a position above 0 have it in their names, which are files.
    """
    rows = change_rows([compared])
    suffix = f"-{position}" if position else ""
    tables = []
    for best, name, caption in (
        (True, "changes", "The best attack of each question in either run, with 95% interval of the difference."),
        (False, "changes-by-attack", "Every attack that both runs have, with 95% interval of the difference."),
    ):
        changes = rows[rows["best"] == best]
        if len(changes):
            table = ReportTable(
                f"{name}{suffix}",
                caption,
                _shown(changes, compared["reference"], compared["run"]),
                folded=not best and len(changes) > _MOST_ROWS,
            )
            tables.append(table)
    return tables


_VERDICTS: Mapping[str, str] = {
    "more": "more is inferred in {run} than in {reference}",
    "less": "less is inferred in {run} than in {reference}",
    "equal": "the same is inferred of every client in both",
    "undecided": "it is not decided in which of both more is inferred",
}


def change_sentences(compared: Mapping[str, Any]) -> list[str]:
    """A sentence on each question: whether more or less is inferred, in the metric's everyday unit, and on whom."""
    rows = change_rows([compared])
    names = {"run": compared["run"], "reference": compared["reference"]}
    best = rows[rows["best"]]
    sentences = []
    for row in records(best):
        setting = describe(setting_of(row), differing(best))
        question = f"{row['question'][:1].upper()}{row['question'][1:]}"
        if setting:
            question += f" ({setting})"
        verdict = _VERDICTS.get(row["verdict"], row["verdict"]).format(**names)
        now = value_in_words(row["metric"], float(row["value"]))
        before = number_in_words(row["metric"], float(row["reference"]))
        # Without the same clients in both runs, the interval is that of two independent means, and n the smaller one.
        how = f"not paired, {row['n']} clients or more in each"
        if row["paired"]:
            how = f"paired on {row['n']} clients"
        difference = _scaled(row["metric"], row["change"])
        ends = f"{_scaled(row['metric'], row['low'])} to {_scaled(row['metric'], row['high'])}"
        sentences.append(
            f"{question}: {verdict}. The best attack {now} in {names['run']}; in {names['reference']}: {before}"
            f" (difference {difference}, 95% interval {ends}, {how})."
        )
    return sentences


def _scaled(name: str, value: float | None) -> str:
    """A difference in the unit of a metric's words, with its sign; an infinite end has no number."""
    entry = metric(name)
    if value is None or not math.isfinite(value):
        return "?"
    if not entry.words or entry.words_scale == 1:
        return f"{value:+.3f}"
    scaled = round(value * entry.words_scale, 1)
    # Below ten a whole number would hide the sign of a difference, or be -0.
    if abs(scaled) >= 10:
        return f"{scaled:+.0f}"
    return f"{scaled:+.1f}"


def _shown(rows: pd.DataFrame, reference: str, run: str) -> pd.DataFrame:
    """Texts of the cells, without a column that says the same in each row."""
    keys = differing(rows)
    texts = []
    for row in records(rows):
        attack = row["attack"]
        if attack != row["reference_attack"]:
            attack = f"{row['reference_attack']}, then {attack}"
        # results.json has None for the infinite ends of an interval.
        low = -math.inf if row["low"] is None else row["low"]
        high = math.inf if row["high"] is None else row["high"]
        clients = str(row["n"])
        if row["seeds"] != 1:
            clients = f"{row['n']}, {row['seeds']} seeds"
        texts.append(
            {
                "leaks": row["verdict"],
                "question": row["family"],
                "attack": attack,
                "setting": describe(setting_of(row), keys),
                "metric": row["metric"],
                reference: number(row["reference"]),
                run: number(row["value"]),
                "difference": f"{row['change']:+.3f}",
                "95% interval": f"{low:+.3f} to {high:+.3f}",
                "n": clients,
                "paired": "yes" if row["paired"] else "no",
            }
        )
    table = pd.DataFrame(texts)
    uninformative = []
    if not table["setting"].ne("").any():
        uninformative.append("setting")
    if rows["paired"].all():
        uninformative.append("paired")
    return table.drop(columns=uninformative)


def text_of_changes(sentences: Sequence[str], notes: Sequence[str], tables: Sequence[ReportTable]) -> str:
    """Sentences on what changed, tables that are not folded, and notes, for a terminal."""
    blocks = ["\n".join(sentences)]
    for table in tables:
        if not table.folded:
            blocks.append("\n".join(text_table([*table.rows], table.texts.to_numpy().tolist(), table.numeric)))
    blocks.append("\n".join(notes))
    return "\n\n".join(blocks)
