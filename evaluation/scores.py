"""The table of scores: one tidy row per attack, setting, seed, round, victim and metric."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from attacks.base import Attack
from protocol.view import ServerView

SETTING = "setting."
"""Prefix of the columns that say which cell of a table a row belongs to, e.g. ``setting.data``."""
SCHEMA: dict[str, str] = {
    "attack": "object",
    "seed": "int64",
    "round": "int64",
    "victim": "int64",
    "person": "int64",
    "items": "int64",
    "positives": "int64",
    "metric": "object",
    "value": "float64",
    "influence": "float64",
    "seconds": "float64",
}
"""Columns that every table of scores has, and their types.

``attack`` is the label of an attack, or of another line (a bound, a model); ``seed`` that of the training; ``round`` of
the recording, from 0; ``victim`` a pseudonym; ``person`` the number that a person has under every seed, where a
pseudonym hides it; ``items`` and ``positives`` the size of the question; ``value`` NaN where a metric is not defined;
``influence`` see `attacks.estimates.Scores.influences`, NaN for none; ``seconds`` the attack's time for this victim.
"""
Role = Literal["ours", "published", "baseline", "reference"]


@dataclass(frozen=True, kw_only=True)
class Line:
    """What reports say about all scores under one label.

    Attributes:
        role: an attack of ours, a published attack, a baseline that attacks must beat, or a reference: a bound or a
            model, which is neither.
        family: the question that it answers, None for a reference.
        question: type of its estimates; attacks and baselines are compared within one.
        sees: see `ThreatModel`.
        knows: see `ThreatModel`.
        active: whether the server deviated from the protocol.
        tells: see `Attack`.
    """

    role: Role = "reference"
    family: str | None = None
    question: str | None = None
    sees: str = ""
    knows: str = ""
    active: bool = False
    tells: str = ""

    @classmethod
    def of(cls, attack: Attack, view: ServerView) -> "Line":
        """The line of an attack on a view."""
        published: Role = "published" if attack.references else "ours"
        return cls(
            role="baseline" if attack.baseline else published,
            family=attack.family,
            question=attack.estimates.__name__,
            sees=attack.threat_model.sees,
            knows=attack.threat_model.knows,
            active=view.manipulation is not None,
            tells=attack.tells,
        )


def score_table(
    attack: str,
    metrics: Mapping[str, ArrayLike],
    *,
    setting: Mapping[str, Any],
    seed: int,
    victims: ArrayLike,
    round: int = 0,
    people: ArrayLike | None = None,
    items: ArrayLike = 0,
    positives: ArrayLike = 0,
    influences: Mapping[str, ArrayLike] | None = None,
    seconds: float = 0.0,
) -> pd.DataFrame:
    """Makes the rows of one line: all victims of the first metric, then those of the next.

    Args:
        attack: label of the line.
        metrics: by name ``(V,)`` values.
        setting: the cell of the table that the rows belong to; always holds ``data``.
        seed: of the training.
        victims: ``(V,)`` pseudonyms.
        round: of the recording.
        people: ``(V,)`` see `SCHEMA`; None where `victims` are the people's own numbers.
        items: ``(V,)``, or one number for all.
        positives: ``(V,)``, or one number for all.
        influences: by metric ``(V,)``.
        seconds: per victim.
    """
    victims = np.asarray(victims).reshape(-1)
    size, times = len(victims), len(metrics)
    influences = influences or {}

    def of_each(values: ArrayLike) -> np.ndarray[Any, Any]:
        """The victims' values, or one for all, again for each metric."""
        return np.tile(np.broadcast_to(np.asarray(values), size), times)

    def by_metric(values: Iterable[ArrayLike]) -> np.ndarray[Any, Any]:
        return np.concatenate([np.zeros(0), *(np.broadcast_to(np.asarray(own, dtype=float), size) for own in values)])

    made = pd.DataFrame(
        {
            "attack": pd.Series([attack] * (size * times), dtype=object),
            "seed": np.int64(seed),
            "round": np.int64(round),
            "victim": of_each(victims).astype(np.int64),
            "person": of_each(victims if people is None else people).astype(np.int64),
            "items": of_each(items).astype(np.int64),
            "positives": of_each(positives).astype(np.int64),
            "metric": pd.Series(np.repeat(np.array(list(metrics), dtype=object), size), dtype=object),
            "value": by_metric(metrics.values()),
            "influence": by_metric(influences.get(name, np.nan) for name in metrics),
            "seconds": float(seconds),
        },
        index=range(size * times),
    )
    columns = {SETTING + key: pd.Series([value] * len(made), dtype=object) for key, value in setting.items()}
    return made.assign(**columns)


def concat(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Joins tables of scores, one below the other; a setting that some lack is None there."""
    filled = [table for table in tables if len(table)]
    if not filled:
        return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in SCHEMA.items()})
    return stacked(filled).astype(SCHEMA)


def stacked(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Tables of any columns, one below the other; a setting that some lack is None there."""
    whole = pd.concat([table for table in tables if len(table)] or tables[:1], ignore_index=True)
    settings = whole[setting_columns(whole)].astype(object)
    return whole.assign(**settings.where(settings.notna(), None))


def setting_columns(table: pd.DataFrame) -> list[str]:
    """Names of the columns that hold settings."""
    return [str(name) for name in table.columns if str(name).startswith(SETTING)]


def setting_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The setting of one row, by key; what the row lacks is left out."""
    return {
        str(name).removeprefix(SETTING): value
        for name, value in row.items()
        if str(name).startswith(SETTING) and value is not None and value == value
    }


def from_records(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> pd.DataFrame:
    """A table of rows; texts and settings stay as they are, None where a row has none: 10 does not become 10.0."""
    made = {}
    for name in dict.fromkeys(name for row in rows for name in row) if columns is None else columns:
        values = [row.get(name) for row in rows]
        plain = name.startswith(SETTING) or any(isinstance(value, str) for value in values)
        made[name] = pd.Series([_given(value) for value in values], dtype=object) if plain else pd.Series(values)
    return pd.DataFrame(made)


def _given(value: Any) -> Any:
    return None if value is None or value != value else value


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as dictionaries by column."""
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def with_setting(table: pd.DataFrame, **setting: Any) -> pd.DataFrame:
    """The same rows with further keys of the setting, each one value or ``(N,)``."""
    columns = {
        SETTING + key: pd.Series(
            list(value) if isinstance(value, pd.Series | np.ndarray | list) else [value] * len(table),
            index=table.index,
            dtype=object,
        )
        for key, value in setting.items()
    }
    return table.assign(**columns)
