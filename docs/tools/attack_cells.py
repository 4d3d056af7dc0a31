"""Cells of published, frozen and other tables: how far each attack goes in a question, by a metric and in a setting."""

import csv
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fedleak.core.attack import Attack
from fedleak.core.metric_table import judges, metric
from fedleak.evaluation.comparisons import Cells
from fedleak.evaluation.labels import combined_label
from fedleak.evaluation.registry import REGISTRY
from fedleak.evaluation.result_names import ATTACKS, SETTING, setting_of
from fedleak.evaluation.run import read_published
from fedleak.evaluation.stored_run import read_results

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "docs" / "results"
FROZEN = ROOT / "tests" / "regression" / "frozen"
PUBLISHED_TABLES = "results/"
"""What the names of published tables begin with."""

CellKey = tuple[str, str, str, str]
"""Table, question, metric and setting as JSON."""
Rank = tuple[bool, float, float]
"""How far an attack goes in a cell: the better one is larger, see `fedleak.evaluation.comparisons.Cells.rank`."""


@dataclass(frozen=True)
class Value:
    """What an attack reached in a cell: its rank among attacks, and its value with the sign that more is more leakage.

    An audit answers with the highest rank; a gate fails by the highest value.
    """

    rank: Rank
    leakage: float


Cell = Mapping[str, Value]
"""Values by ``family/name``; of an attack and of its results with priors, the better."""


def measured_cells(
    published: Path = PUBLISHED, frozen: Path = FROZEN, runs: Iterable[Path] = ()
) -> dict[CellKey, Cell]:
    """The cells of all published and frozen tables and of some runs, with the listed attacks of this version."""
    cells: dict[CellKey, Cell] = {}
    for path in sorted(published.glob("*.json")):
        cells |= _cells(f"{PUBLISHED_TABLES}{path.stem}", read_published(path).results)
    for path in sorted(frozen.glob("*.tsv")):
        cells |= _cells(f"frozen/{path.stem}", _frozen_results(path))
    for path in runs:
        cells |= _cells(f"runs/{path}", read_results(path).results)
    return cells


def _frozen_results(path: Path) -> pd.DataFrame:
    """A frozen table in the columns of results; it has no intervals, so that no leak of it counts as shown."""
    frozen = pd.read_csv(path, sep="\t", quoting=csv.QUOTE_NONE)
    kinds = _kinds_of(frozen["attack"])
    rows = []
    for frozen_row in frozen.to_dict("records"):
        kind = kinds.get(frozen_row["attack"])
        if kind is None:
            continue
        role = "published" if kind.references else "ours"
        # A frozen table has the setting, the mean and n; the attack's class says the rest.
        row = {
            "attack": frozen_row["attack"],
            "metric": frozen_row["metric"],
            "mean": pd.to_numeric(frozen_row["mean"], errors="coerce"),
            "low": math.nan,
            "high": math.nan,
            "n": frozen_row["n"],
            "question": kind.estimates.question(),
            "family": kind.family,
            "role": "baseline" if kind.baseline else role,
            "comparison": kind.comparison(),
        }
        for name, value in json.loads(frozen_row["setting"]).items():
            row[f"{SETTING}{name}"] = value
        rows.append(row)
    return pd.DataFrame(rows)


def _cells(table: str, results: pd.DataFrame) -> dict[CellKey, Cell]:
    """The cells of a table of results."""
    if results.empty:
        return {}
    kinds = _kinds_of(results["attack"], results["family"])
    table_cells = Cells(results)
    cells: dict[CellKey, dict[str, Value]] = {}
    for row in table_cells.rows:
        kind = kinds.get(row["attack"])
        if row["role"] not in ATTACKS or kind is None or not kind.listed:
            continue
        entry = metric(row["metric"])
        question = str(row["question"])
        # Answers are by the metrics that judge, gates by all that measure a leak.
        if not (entry.leak or judges(entry.name, question)):
            continue
        key = (table, question, entry.name, json.dumps(setting_of(row), sort_keys=True))
        cell = cells.setdefault(key, {})
        name = _name(kind)
        value = Value(table_cells.rank(row), entry.leakage(float(row["mean"])))
        # Results with priors come with those of their attack.
        if name not in cell or value.rank > cell[name].rank:
            cell[name] = value
    return dict(cells)


def _kinds_of(labels: Iterable[str], families: Iterable[str | None] = ()) -> dict[str, type[Attack]]:
    """The attacks of this version by their labels in a table.

    Args:
        labels: labels of the lines of the table.
        families: families of these lines; empty where the table does not say them. Then a name that several families
            have is of the family that the other attacks of the table are of, and nobody's if they are of several.
    """
    # 1. Every label that an attack may have, alone or with its family and with priors, by family.
    by_label: dict[str, dict[str, type[Attack]]] = {}
    for kind in REGISTRY.values():
        for label in kind.names():
            for name in (label, f"{kind.family}/{label}"):
                by_label.setdefault(name, {})[kind.family] = kind
                by_label.setdefault(combined_label(name), {})[kind.family] = kind
    # 2. Families of the labels of the table that only one family has.
    family_of = dict(zip(labels, families, strict=False))
    fitting = {label: by_label[label] for label in dict.fromkeys(labels) if label in by_label}
    certain_families: set[str | None] = set()
    for by_family in fitting.values():
        if len(by_family) == 1:
            certain_families.update(by_family)
    # 3. A shared label is of the family that the table says, else of the one that its other attacks are of.
    kinds = {}
    for label, by_family in fitting.items():
        candidates = list(by_family.values())
        if len(candidates) > 1:
            possible = {family_of[label]} if label in family_of else certain_families
            candidates = [kind for family, kind in by_family.items() if family in possible]
        if len(candidates) == 1:
            kinds[label] = candidates[0]
    return kinds


def _name(kind: type[Attack]) -> str:
    return f"{kind.family}/{kind.name}"
