"""Values of the papers, joined to results by attack, metric and setting.

``paper_values/NAME.csv`` has the columns ``table, attack, metric, statistic, value``, optionally ``note``, and one per
setting key. A result gets the first row with the same attack, metric and setting; a key that only one of them has is a
difference. ``NAME.yaml`` has the other fields of `PaperTable`.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fedleak.evaluation.scores import SETTING, setting_columns

_FOLDER = Path(__file__).parent / "paper_values"
_FIXED = ("table", "attack", "metric", "statistic", "value", "note")
_ANY = "any"


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """Values of a paper, and the results to compare them with.

    Attributes:
        values: rows as texts.
        source: source in a report, with ``{table}`` for the number of the table.
        families: families of the attacks; a line without a family, e.g. a model, always fits.
        defaults: value of a setting key where a row or a result lacks it.
        ignored: setting keys of a result that do not affect the values.
        same: values of a result that count as another value, by key.
        next_to: attacks of the paper to compare an attack with that the paper does not have.
        notes: additions ``says`` to the source for results with the settings ``where``; ``any`` fits all values.
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
        """Table of a CSV file and the YAML file of the same name."""
        values = pd.read_csv(path, dtype=str, keep_default_na=False)
        return cls(values=values, **yaml.safe_load(path.with_suffix(".yaml").read_text(encoding="utf-8")))

    def numbers(self, results: pd.DataFrame, settings: pd.DataFrame) -> pd.DataFrame:
        """Columns ``paper`` and ``source`` of the results with a value here, by the results' index.

        `settings` are theirs as texts, a column per key.
        """
        # 1. Results of attacks that the paper has, or that are compared with one of its attacks.
        comparable = results["attack"].isin({*self.values["attack"], *self.next_to})
        comparable &= results["family"].isna() | results["family"].isin(self.families)
        results = results[comparable]
        settings = settings[comparable]
        # 2. Their settings by the paper's keys, with defaults, and values that count as another replaced by it.
        named = [name for name in self.values.columns if name not in _FIXED]
        keys = list(dict.fromkeys([*named, *self.defaults]))
        cells = self._filled(settings.reindex(columns=keys, fill_value=""))
        cells = cells.replace({key: dict(alike) for key, alike in self.same.items()})
        # 3. A result with a key that the paper lacks is of another setting, unless the key does not matter.
        further = settings.drop(columns=[*keys, *self.ignored], errors="ignore")
        fits = (further == "").all(axis=1)
        # 4. A row for the attack itself, then one for each it is compared with: the first that has a value is taken.
        attacks = results["attack"].map(lambda name: [name, *self.next_to.get(name, ())])
        cells = cells.assign(metric=results["metric"], attack=attacks, row=results.index)[fits].explode("attack")
        means = self.values[self.values["statistic"] == "mean"].reindex(columns=[*_FIXED, *keys], fill_value="")
        matches = cells.merge(self._filled(means), on=["attack", "metric", *keys])
        matches = matches.drop_duplicates("row").set_index("row")
        sources = []
        for row, table, note in zip(matches.index, matches["table"], matches["note"], strict=True):
            parts = [self.source.format(table=table), note, *self._notes(settings.loc[row])]
            sources.append(", ".join(part for part in parts if part))
        return pd.DataFrame(
            {
                "paper": matches["value"].astype(float),
                "source": pd.Series(sources, matches.index, object),
            }
        )

    def _filled(self, table: pd.DataFrame) -> pd.DataFrame:
        """The table with defaults for missing values."""
        filled = {name: table[name].where(table[name] != "", _text(value)) for name, value in self.defaults.items()}
        return table.assign(**filled)

    def _notes(self, setting: pd.Series) -> list[str]:
        """Notes on a setting that has all keys of a note, with the note's values or any."""

        def fits(key: str, value: str) -> bool:
            return setting.get(key, "") != "" and value in (_ANY, setting[key])

        return [note["says"] for note in self.notes if all(fits(key, value) for key, value in note["where"].items())]


@functools.cache
def paper_tables() -> tuple[PaperTable, ...]:
    """All tables of ``paper_values``."""
    return tuple(PaperTable.read(path.with_suffix(".csv")) for path in sorted(_FOLDER.glob("*.yaml")))


def with_papers(results: pd.DataFrame) -> pd.DataFrame:
    """Results with the papers' values in columns ``paper`` and ``source``, NaN and None where there are none."""
    plain = results.reset_index(drop=True)
    settings = plain[setting_columns(plain)].map(_text).rename(columns=lambda name: name.removeprefix(SETTING))
    # Where several tables have a value of a result, the first in the order of their files counts.
    paper_numbers = pd.concat([table.numbers(plain, settings) for table in paper_tables()])
    paper_numbers = paper_numbers[~paper_numbers.index.duplicated()].reindex(plain.index)
    sources = paper_numbers["source"].astype(object)
    return plain.assign(paper=paper_numbers["paper"], source=sources.where(sources.notna(), None))


def _text(value: Any) -> str:
    """Value of a setting as in the files; empty for None."""
    if value is None or value != value:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:g}"
    return str(value)
