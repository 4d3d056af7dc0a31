"""The papers' own numbers: one CSV for each group of tables, joined to results by the settings that its columns name.

A file ``paper_values/NAME.csv`` has the columns ``table, attack, metric, statistic, value``, optionally ``note``, and
one for every key of a setting that the tables have. A result stands next to the first row whose attack and metric are
its own and whose setting is the same, key by key: a key that only one of them has is a difference. ``NAME.yaml`` says
what else is to be known, see `PaperTable`.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from evaluation.scores import SETTING, setting_columns

_FOLDER = Path(__file__).parent / "paper_values"
_FIXED = ("table", "attack", "metric", "statistic", "value", "note")
_ANY = "any"


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """Numbers of a paper, and which results they stand next to.

    Attributes:
        values: the rows, as texts.
        source: what a report prints, with ``{table}`` in place of the table's number.
        families: of the attacks; a line without a family, e.g. a model, fits all.
        defaults: by key of a setting, its value where a row or a result does not have it.
        ignored: keys of a result's setting on which the numbers do not depend.
        same: by key, values of a result that count as another one.
        next_to: by attack that the paper does not have, the paper's attacks that it stands next to.
        notes: what the source adds, ``says``, of results with the settings ``where``; the value ``any`` fits all.
    """

    values: pd.DataFrame
    source: str
    families: Sequence[str]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    ignored: Sequence[str] = ()
    same: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    next_to: Mapping[str, Sequence[str]] = field(default_factory=dict)
    notes: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def read(cls, path: Path) -> "PaperTable":
        """Reads a CSV and the YAML file of its name."""
        values = pd.read_csv(path, dtype=str, keep_default_na=False)
        return cls(values=values, **yaml.safe_load(path.with_suffix(".yaml").read_text(encoding="utf-8")))

    def numbers(self, results: pd.DataFrame) -> pd.DataFrame:
        """Columns ``paper`` and ``source`` of the results that have a number here, by the results' index."""
        own = results[setting_columns(results)].map(_text).rename(columns=lambda name: name.removeprefix(SETTING))
        named = [name for name in self.values.columns if name not in _FIXED]
        keys = list(dict.fromkeys([*named, *self.defaults]))
        asked = self._filled(own.reindex(columns=keys, fill_value=""))
        asked = asked.replace({key: dict(alike) for key, alike in self.same.items()})
        further = own.drop(columns=[*keys, *self.ignored], errors="ignore")
        fits = (further == "").all(axis=1) & (results["family"].isna() | results["family"].isin(self.families))
        attacks = results["attack"].map(lambda name: [name, *self.next_to.get(name, ())])
        asked = asked.assign(metric=results["metric"], attack=attacks, row=results.index)[fits].explode("attack")
        means = self.values[self.values["statistic"] == "mean"].reindex(columns=[*_FIXED, *keys], fill_value="")
        found = asked.merge(self._filled(means), on=["attack", "metric", *keys]).drop_duplicates("row").set_index("row")
        sources = [
            ", ".join(part for part in (self.source.format(table=table), note, *self._notes(own.loc[row])) if part)
            for row, table, note in zip(found.index, found["table"], found["note"], strict=True)
        ]
        return pd.DataFrame({"paper": found["value"].astype(float), "source": pd.Series(sources, found.index, object)})

    def _filled(self, table: pd.DataFrame) -> pd.DataFrame:
        """With the defaults where a row has no value."""
        filled = {name: table[name].where(table[name] != "", _text(value)) for name, value in self.defaults.items()}
        return table.assign(**filled)

    def _notes(self, setting: pd.Series) -> list[str]:
        return [
            note["says"]
            for note in self.notes
            if all(setting.get(k, "") != "" and v in (_ANY, setting[k]) for k, v in note["where"].items())
        ]


@functools.cache
def paper_tables() -> tuple[PaperTable, ...]:
    """Every table of ``paper_values``."""
    return tuple(PaperTable.read(path.with_suffix(".csv")) for path in sorted(_FOLDER.glob("*.yaml")))


def with_papers(results: pd.DataFrame) -> pd.DataFrame:
    """Results with what the papers report: columns ``paper`` and ``source``, NaN and None where they have no number."""
    plain = results.reset_index(drop=True)
    found = pd.concat([table.numbers(plain) for table in paper_tables()])
    found = found[~found.index.duplicated()].reindex(plain.index)
    return plain.assign(
        paper=found["paper"], source=found["source"].astype(object).where(found["source"].notna(), None)
    )


def _text(value: Any) -> str:
    """A value of a setting as the files write it; nothing for None."""
    if value is None or value != value:
        return ""
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
