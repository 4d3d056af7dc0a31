"""Table of scores: one tidy row per attack, setting, seed, round, victim and metric; and labels of its settings."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fedleak.evaluation.result_names import SETTING as SETTING
from fedleak.evaluation.result_names import setting_of as setting_of

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
"""Columns of every table of scores, and their types.

``attack`` is the label of an attack or of another line (a bound, a model); ``seed`` the seed of the training; ``round``
the round of the recording, from 0; ``victim`` a pseudonym; ``person`` the client number, which is the same under every
seed (in files, both are a new number, see `fedleak.evaluation.persons`); ``items`` and ``positives`` the size of the
inference problem; ``value`` NaN where a metric is undefined; ``influence`` see
`fedleak.core.estimates.Scores.influences`, NaN for none; ``seconds`` the attack's time per victim.
"""
_WITHOUT_KEY = frozenset({"data", "ranker", "click_model"})
"""Keys of settings whose values need no name in a label."""
_ROUNDING = 1e-12
"""Size below which a value is an error of rounding, e.g. the distance of equal vectors."""
Role = Literal["ours", "published", "baseline", "reference"]


@dataclass(frozen=True, kw_only=True)
class AttackInfo:
    """Description of the scores under one label, for reports.

    Attributes:
        name: name of the attack, see `fedleak.core.attack.Attack.name`; empty where the scores are of no attack.
        variant: key of the variant that the attack is, see `fedleak.core.attack.Attack.variants`; None for others.
        with_prior: whether the priors of the question were added to the attack's answers after it ran, see
            `fedleak.evaluation.posterior`. An attack that uses a prior itself, e.g. a variant of that name, has False.
        role: attack of this project, published attack, baseline, or reference (a bound or a model).
        comparison: what a baseline is as a comparison, see `fedleak.core.attack.Attack.comparison`; empty for others.
        family: family of the attack, None for a reference.
        question: see `fedleak.core.estimates.Estimate.question`; attacks are compared with baselines of the same
            question.
        sees: what the server sees, see `fedleak.core.threat_model.ThreatModel`.
        knows: what the server knows beforehand.
        active: whether the server deviated from the protocol.
        tells: what the attack infers, see `fedleak.core.estimates.Estimate.inferred`.
        unbounded: why it is not known how many bits the updates can carry, a reason for each kind of view, see
            `fedleak.evaluation.channel`; empty if it is.
    """

    name: str = ""
    variant: str | None = None
    with_prior: bool = False
    role: Role = "reference"
    comparison: str = ""
    family: str | None = None
    question: str | None = None
    sees: str = ""
    knows: str = ""
    active: bool = False
    tells: str = ""
    unbounded: tuple[str, ...] = ()

    def after(self, earlier: "AttackInfo | None") -> "AttackInfo":
        """The same, with the reasons of earlier views."""
        earlier_reasons = () if earlier is None else earlier.unbounded
        reasons = dict.fromkeys([*earlier_reasons, *self.unbounded])
        return dataclasses.replace(self, unbounded=tuple(reasons))

    def columns(self) -> dict[str, Any]:
        """The fields as columns of a table of results, with one text for all reasons."""
        return {**dataclasses.asdict(self), "unbounded": "; ".join(self.unbounded)}


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
    """Rows of one line: all victims of the first metric, then those of the next; see `SCHEMA` for the columns.

    Args:
        attack: label of the line.
        metrics: ``(V,)`` values by name.
        setting: cell of the table that the rows belong to; it always holds ``data``.
        seed: seed of the training.
        victims: ``(V,)`` pseudonyms.
        round: round of the recording.
        people: ``(V,)`` client numbers; None if `victims` are client numbers.
        items: ``(V,)`` or one number for all.
        positives: ``(V,)`` or one number for all.
        influences: ``(V,)`` by metric.
        seconds: seconds per victim.
    """
    victims = np.asarray(victims).reshape(-1)
    size = len(victims)
    influences = influences or {}

    def of_each(values: ArrayLike) -> np.ndarray[Any, Any]:
        """Values of the victims, once for each metric."""
        return np.tile(np.broadcast_to(np.asarray(values), size), len(metrics))

    def by_metric(values_of_metrics: Iterable[ArrayLike]) -> np.ndarray[Any, Any]:
        """Values of the victims by the first metric, then by the next."""
        columns = [np.zeros(0)]
        for values in values_of_metrics:
            columns.append(np.broadcast_to(np.asarray(values, dtype=float), size))
        return np.concatenate(columns)

    columns: dict[str, Any] = {
        "attack": attack,
        "seed": seed,
        "round": round,
        "victim": of_each(victims),
        "person": of_each(victims if people is None else people),
        "items": of_each(items),
        "positives": of_each(positives),
        "metric": np.repeat(np.array(list(metrics), dtype=object), size),
        "value": by_metric(metrics.values()),
        "influence": by_metric(influences.get(name, np.nan) for name in metrics),
        "seconds": seconds,
    }
    table = pd.DataFrame(columns, index=range(size * len(metrics))).astype(SCHEMA)
    # Lists and dictionaries are values of a setting too, so each row gets the whole value.
    settings = {}
    for key, value in setting.items():
        settings[SETTING + key] = pd.Series([value] * len(table), dtype=object)
    return table.assign(**settings)


def concat(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenation of tables of scores; a setting that a table lacks is None in its rows."""
    filled = [table for table in tables if len(table)]
    if not filled:
        return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in SCHEMA.items()})
    return stacked(filled).astype(SCHEMA)


def stacked(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenation of tables with any columns; a setting that a table lacks is None in its rows."""
    with_rows = [table for table in tables if len(table)]
    table = pd.concat(with_rows or tables[:1], ignore_index=True)
    settings = table[setting_columns(table)].astype(object)
    return table.assign(**settings.where(settings.notna(), None))


def setting_columns(table: pd.DataFrame) -> list[str]:
    """Names of the setting columns."""
    return [str(name) for name in table.columns if str(name).startswith(SETTING)]


def rows_of(scores: pd.DataFrame, row: Mapping[str, object]) -> pd.DataFrame:
    """Rows of the attack, metric and setting of a row of results."""
    is_same = (scores["attack"] == row["attack"]) & (scores["metric"] == row["metric"])
    for name in setting_columns(scores):
        # By text: lists are equal as texts, and 1 is not True.
        if name in row:
            is_same &= scores[name].map(repr) == repr(row[name])
    return scores[is_same]


def from_records(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Table of rows; strings and settings keep their types (10 does not become 10.0), missing ones are None."""
    if columns is None:
        names: dict[str, None] = {}
        for row in rows:
            names.update(dict.fromkeys(row))
        columns = list(names)
    series = {}
    for name in columns:
        values = [row.get(name) for row in rows]
        if name.startswith(SETTING) or any(isinstance(value, str) for value in values):
            series[name] = pd.Series([_without_nan(value) for value in values], dtype=object)
        else:
            series[name] = pd.Series(values)
    return pd.DataFrame(series)


def _without_nan(value: Any) -> Any:
    """A value, None for NaN, the only one that differs from itself."""
    if value != value:
        return None
    return value


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as dictionaries by column."""
    rows = []
    for row in table.to_dict("records"):
        rows.append({str(name): value for name, value in row.items()})
    return rows


def plain_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as dictionaries by column, with None for what a row lacks."""
    return records(table.astype(object).where(table.notna(), None))


def with_setting(table: pd.DataFrame, **setting: Any) -> pd.DataFrame:
    """The same rows with more setting columns, each one value or ``(N,)``."""
    columns = {}
    for key, value in setting.items():
        is_column = isinstance(value, (pd.Series, np.ndarray, list))
        values = list(value) if is_column else [value] * len(table)
        columns[SETTING + key] = pd.Series(values, index=table.index, dtype=object)
    return table.assign(**columns)


def differing(table: pd.DataFrame) -> set[str]:
    """Setting keys that do not have the same value in all rows."""
    keys = set()
    for name in setting_columns(table):
        if table[name].map(repr).nunique(dropna=False) > 1:
            keys.add(name.removeprefix(SETTING))
    return keys


def describe(setting: Mapping[str, Any], keys: Collection[str] | None = None) -> str:
    """Label of a setting, with all keys or only the given ones; a run named after its data needs no second name."""
    described = {key: value for key, value in setting.items() if keys is None or key in keys}
    words = []
    for key, value in described.items():
        if key == "run" and value == described.get("data"):
            continue
        if key in _WITHOUT_KEY:
            words.append(str(value))
        else:
            words.append(f"{key} {value}")
    return ", ".join(words)


def number(value: float) -> str:
    """Label of a number: three decimals, or scientific notation where these would be 0.000 and it is no rounding error.

    >>> number(0.9), number(2e-5), number(-2.2e-17)
    ('0.900', '2.0e-05', '0.000')
    """
    if abs(value) < _ROUNDING:
        return "0.000"
    if abs(value) < 0.0005:
        return f"{value:.1e}"
    return f"{value:.3f}"
