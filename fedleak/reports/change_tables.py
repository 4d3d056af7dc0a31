"""Tables of what changed between runs, for pages and terminals."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedleak.core.metric_table import metric
from fedleak.evaluation.changes import COLUMNS, Changes
from fedleak.evaluation.scores import SETTING, describe, differing, from_records, number, records, setting_of
from fedleak.reports.metric_words import number_in_words, value_in_words
from fedleak.reports.tables import Table
from fedleak.reports.text_table import text_table

_MOST_ROWS = 12
"""Largest number of rows that are not folded."""


def stored_changes(found: Changes) -> dict[str, Any]:
    """What changed, as ``results.json`` holds it: names of the runs, sentences and rows, with None for infinity."""
    rows = [
        {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()}
        for row in (one.row() for one in found.rows)
    ]
    return {"reference": found.reference, "run": found.run, "notes": list(found.notes), "rows": rows}


def change_rows(compared: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """All rows of comparisons, with the names of the runs in ``of_run`` and ``of_reference``."""
    rows = [{"of_reference": one["reference"], "of_run": one["run"], **row} for one in compared for row in one["rows"]]
    settings = dict.fromkeys(name for row in rows for name in row if name.startswith(SETTING))
    return from_records(rows, ["of_reference", "of_run", *COLUMNS, *settings])


def change_tables(compared: Mapping[str, Any], place: int = 0) -> list[Table]:
    """Tables of one comparison: of the best attack of each question, and of every attack."""
    rows = change_rows([compared])
    suffix, tables = f"-{place}" if place else "", []
    for best, name, caption in (
        (True, "changes", "The best attack of each question in either run, with 95% interval of the difference."),
        (False, "changes-by-attack", "Every attack that both runs have, with 95% interval of the difference."),
    ):
        own = rows[rows["best"] == best]
        if len(own):
            shown = _shown(own, compared["reference"], compared["run"])
            tables.append(Table(f"{name}{suffix}", caption, shown, folded=not best and len(own) > _MOST_ROWS))
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
        where = f" ({setting})" if setting else ""
        question = f"{row['question'][:1].upper()}{row['question'][1:]}{where}"
        verdict = _VERDICTS.get(row["verdict"], row["verdict"]).format(**names)
        now = value_in_words(row["metric"], float(row["value"]))
        before = number_in_words(row["metric"], float(row["reference"]))
        how = f"paired on {row['n']} clients" if row["paired"] else f"not paired, {row['n']} clients or more in each"
        difference = _scaled(row["metric"], row["change"])
        ends = " to ".join(_scaled(row["metric"], row[end]) for end in ("low", "high"))
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
    return f"{scaled:+.0f}" if abs(scaled) >= 10 else f"{scaled:+.1f}"


def _shown(rows: pd.DataFrame, reference: str, run: str) -> pd.DataFrame:
    keys = differing(rows)
    loose = not rows["paired"].all()
    texts = []
    for row in records(rows):
        same = row["attack"] == row["reference_attack"]
        ends = [-math.inf if row["low"] is None else row["low"], math.inf if row["high"] is None else row["high"]]
        texts.append(
            {
                "leaks": row["verdict"],
                "question": row["family"],
                "attack": row["attack"] if same else f"{row['reference_attack']}, then {row['attack']}",
                "setting": describe(setting_of(row), keys),
                "metric": row["metric"],
                reference: number(row["reference"]),
                run: number(row["value"]),
                "difference": f"{row['change']:+.3f}",
                "95% interval": " to ".join(f"{end:+.3f}" for end in ends),
                "n": str(row["n"]) if row["seeds"] == 1 else f"{row['n']}, {row['seeds']} seeds",
                "paired": "yes" if row["paired"] else "no",
            }
        )
    table = pd.DataFrame(texts)
    empty = [name for name in ("setting",) if not table[name].ne("").any()] + ([] if loose else ["paired"])
    return table.drop(columns=empty)


def text_of_changes(sentences: Sequence[str], notes: Sequence[str], tables: Sequence[Table]) -> str:
    """Sentences on what changed, tables that are not folded, and notes, for a terminal."""
    shown = [
        "\n".join(text_table([*one.rows], one.texts.to_numpy().tolist(), one.numeric))
        for one in tables
        if not one.folded
    ]
    return "\n\n".join(["\n".join(sentences), *shown, "\n".join(notes)])
