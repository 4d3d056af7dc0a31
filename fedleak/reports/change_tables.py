"""Tables of what changed between runs, for pages and terminals."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedleak.evaluation.changes import COLUMNS, Changes
from fedleak.evaluation.scores import SETTING, describe, differing, from_records, number, records, setting_of
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


def text_of_changes(notes: Sequence[str], tables: Sequence[Table]) -> str:
    """Tables that are not folded, and sentences, for a terminal."""
    shown = [
        "\n".join(text_table([*one.rows], one.texts.to_numpy().tolist(), one.numeric))
        for one in tables
        if not one.folded
    ]
    return "\n\n".join([*shown, "\n".join(notes)])
