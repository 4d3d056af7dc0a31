"""Which attacks are the best of a question anywhere, and which published ones a default audit can do without.

"Anywhere" is every cell of docs/results and of the frozen tables of tests/regression. A cell is a table, a question, a
metric that measures a leak, and a setting, data among it. "Best" is what `fedleak.evaluation.comparisons.Cells.rank`
says, as for every answer of an audit. Attacks with `Attack.for_comparison` are left out of a default audit; this says
which may have it:

    python -m docs.tools.best_attacks          # prints a line for each attack
    python -m docs.tools.best_attacks RUN ...  # with the cells of audits too

The tables have bits of few attacks, so that an attack should be looked at in audits with ``--published`` too before it
is left out: of one step on MNIST (``mlp_mnist``), which no table has, `auxiliary-gradients` gives .1 bits more than all
others, and .2 more than ours.
"""

import csv
import json
import math
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fedleak.core.attack import Attack
from fedleak.core.metric_table import judges, metric
from fedleak.core.threat_model import Need, ThreatModel
from fedleak.evaluation.comparisons import Cells
from fedleak.evaluation.labels import combined_label
from fedleak.evaluation.registry import REGISTRY
from fedleak.evaluation.result_names import ATTACKS, SETTING, setting_of
from fedleak.evaluation.run import read_published
from fedleak.evaluation.stored_run import read_results
from fedleak.reports.text_table import text_table

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "docs" / "results"
FROZEN = ROOT / "tests" / "regression" / "frozen"
TIED = 0.005
"""Lead below which two attacks count as tied in the printed table; what may be left out is decided without it."""
FEWEST_CELLS = 3
"""Cells that an attack must have been measured in before it may be left out: fewer say too little."""
FEWEST_SETTINGS = 2
"""Settings, of one table or several, that these cells must be of."""
_RESULTS = "results/"
"""What the names of published tables begin with."""

Place = tuple[str, str, str, str]
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


@dataclass(frozen=True)
class Standing:
    """How an attack stands among the others of its questions.

    Attributes:
        cells: number of cells that it was measured in.
        settings: number of settings of these.
        best: cells in which it is the best, or within `TIED` of it.
        strictly_best: cells in which no other attack is within `TIED` of it.
        largest_lead: its largest lead over all others; NaN where it was never measured beside another one.
    """

    cells: int
    settings: int
    best: int
    strictly_best: int
    largest_lead: float


def measured_cells(published: Path = PUBLISHED, frozen: Path = FROZEN, runs: Iterable[Path] = ()) -> dict[Place, Cell]:
    """The cells of all published and frozen tables and of some runs, with the listed attacks of this version."""
    cells: dict[Place, Cell] = {}
    for path in sorted(published.glob("*.json")):
        cells |= _cells(f"{_RESULTS}{path.stem}", read_published(path).results)
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
    for line in frozen.to_dict("records"):
        kind = kinds.get(line["attack"])
        if kind is None:
            continue
        role = "published" if kind.references else "ours"
        row = {
            "attack": line["attack"],
            "metric": line["metric"],
            "mean": pd.to_numeric(line["mean"], errors="coerce"),
            "low": math.nan,
            "high": math.nan,
            "n": line["n"],
            "question": kind.estimates.question(),
            "family": kind.family,
            "role": "baseline" if kind.baseline else role,
            "comparison": kind.comparison(),
        }
        setting = json.loads(line["setting"])
        rows.append(row | {f"{SETTING}{name}": value for name, value in setting.items()})
    return pd.DataFrame(rows)


def _cells(table: str, results: pd.DataFrame) -> dict[Place, Cell]:
    """The cells of a table of results."""
    if results.empty:
        return {}
    kinds = _kinds_of(results["attack"], results["family"])
    table_cells = Cells(results)
    cells: dict[Place, dict[str, Value]] = {}
    for row in table_cells.rows:
        kind = kinds.get(row["attack"])
        if row["role"] not in ATTACKS or kind is None or not kind.listed:
            continue
        entry, question = metric(row["metric"]), str(row["question"])
        # Answers are by the metrics that judge, gates by all that measure a leak.
        if not (entry.leak or judges(entry.name, question)):
            continue
        place = table, question, entry.name, json.dumps(setting_of(row), sort_keys=True)
        cell = cells.setdefault(place, {})
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
    by_label: dict[str, dict[str, type[Attack]]] = {}
    for kind in REGISTRY.values():
        for label in kind.names():
            for name in (label, f"{kind.family}/{label}"):
                by_label.setdefault(name, {})[kind.family] = kind
                by_label.setdefault(combined_label(name), {})[kind.family] = kind
    family_of = dict(zip(labels, families, strict=False))
    fitting = {label: by_label[label] for label in dict.fromkeys(labels) if label in by_label}
    certain = {family for of_label in fitting.values() if len(of_label) == 1 for family in of_label}
    kinds = {}
    for label, of_label in fitting.items():
        wanted = {family_of[label]} if label in family_of else certain
        chosen = [kind for family, kind in of_label.items() if len(of_label) == 1 or family in wanted]
        if len(chosen) == 1:
            kinds[label] = chosen[0]
    return kinds


def _name(kind: type[Attack]) -> str:
    return f"{kind.family}/{kind.name}"


def standing(name: str, cells: Mapping[Place, Cell]) -> Standing:
    """How an attack stands in all cells; results of others by its side count, whether a default audit runs them."""
    best = strictly_best = 0
    largest_lead = math.nan
    places = [place for place, cell in cells.items() if name in cell]
    for place in places:
        others = [value.leakage for other, value in cells[place].items() if other != name]
        lead = cells[place][name].leakage - max(others, default=-math.inf)
        best += lead >= -TIED
        strictly_best += lead > TIED
        if others:
            largest_lead = lead if math.isnan(largest_lead) else max(largest_lead, lead)
    settings = len({(table, setting) for table, _, _, setting in places})
    return Standing(len(places), settings, best, strictly_best, largest_lead)


def lost_cells(removed: Collection[str], cells: Mapping[Place, Cell]) -> dict[Place, float]:
    """The cells in which an audit without some attacks finds less, and how much less of the metric.

    Infinite where nothing is left. A slow attack makes up for none that is not: a default audit runs no slow ones.
    """
    lost: dict[Place, float] = {}
    for place, cell in cells.items():
        for runs_slow in (False, True):
            before = {name: value for name, value in cell.items() if runs_slow or not REGISTRY[name].slow}
            after = {name: value for name, value in before.items() if name not in removed}
            if len(after) == len(before):
                continue
            if not after:
                lost[place] = math.inf
            elif _is_less(after, before):
                lost[place] = max(_highest(before) - _highest(after), lost.get(place, 0.0))
    return lost


def _is_less(after: Cell, before: Cell) -> bool:
    """Whether attacks reach less than others in a cell: the best answer has a lower rank, or the value of the gate."""
    ranks = [max(value.rank for value in cell.values()) for cell in (after, before)]
    return ranks[0] < ranks[1] or _highest(after) < _highest(before)


def _highest(cell: Cell) -> float:
    return max(value.leakage for value in cell.values())


def why_never(name: str, cells: Mapping[Place, Cell]) -> str:
    """Why an attack is no candidate for being left out, whatever the others reach; empty for a candidate."""
    kind = REGISTRY[name]
    if kind.baseline:
        return "a baseline"
    if not kind.references:
        return "ours"
    if kind.exact:
        return "exact"
    if kind.certifies:
        return "certifies"
    if not any(name in cell for (table, *_), cell in cells.items() if table.startswith(_RESULTS)):
        return "no published table has it, and frozen ones are small"
    measured = standing(name, cells)
    if measured.cells < FEWEST_CELLS or measured.settings < FEWEST_SETTINGS:
        return f"{measured.cells} cells of {measured.settings} settings say too little"
    return ""


def reasons_to_stay(cells: Mapping[Place, Cell]) -> dict[str, str]:
    """By attack why a default audit runs it; empty for those of the largest set that it can do without.

    All of these go together, so that what one of them finds another of them cannot make up for.
    """
    reasons = {name: why_never(name, cells) for name in REGISTRY}
    candidates = [name for name, reason in reasons.items() if not reason]
    removed = _removable(candidates, cells)
    for name in candidates:
        if name not in removed:
            together = {*removed, name}
            reasons[name] = _why(_missed(name, together, cells), lost_cells(together, cells))
    return reasons


def _removable(candidates: Collection[str], cells: Mapping[Place, Cell]) -> set[str]:
    """The largest set of candidates of which none is missed when all of them are removed."""
    removed = {*candidates}
    # The one that is missed most comes back first: it may be a substitute of the others.
    while missed := {name: places for name in removed if (places := _missed(name, removed, cells))}:
        removed.remove(min(missed, key=lambda one: (-len(missed[one]), one)))
    # Others that came back later may be substitutes of those that came back before.
    for name in candidates:
        together = {*removed, name}
        if not any(_missed(one, together, cells) for one in together):
            removed = together
    return removed


def _missed(name: str, removed: Collection[str], cells: Mapping[Place, Cell]) -> list[Place]:
    """The cells of an attack in which its substitutes are not as good as it is.

    A substitute is not removed, and runs wherever the attack does: it needs no more, and is not slow if that is not.
    """
    kind = REGISTRY[name]
    substitutes = {
        other
        for other, of_other in REGISTRY.items()
        if other not in removed
        and (kind.slow or not of_other.slow)
        and needs_no_more(of_other.threat_model, kind.threat_model)
    }
    missed = []
    for place, cell in cells.items():
        if name not in cell:
            continue
        of_substitutes = {other: value for other, value in cell.items() if other in substitutes}
        if not of_substitutes or _is_less(of_substitutes, {name: cell[name]}):
            missed.append(place)
    return missed


def _why(missed: Collection[Place], lost: Mapping[Place, float]) -> str:
    """Why an attack stays that is better in some cells than its substitutes, if some cells are lost without it."""
    if not missed:
        return "one that is left out has no other substitute"
    of_attack = [lost[place] for place in missed if place in lost]
    if not of_attack:
        return f"where a better one lacks what it needs: in {_counted(len(missed))}"
    by = "the only one in some" if math.isinf(max(of_attack)) else f"by up to {max(of_attack):.2g}"
    return f"best in {_counted(len(of_attack))}, {by}"


def _counted(cells: int) -> str:
    return "1 cell" if cells == 1 else f"{cells} cells"


def needs_no_more(one: ThreatModel, other: ThreatModel) -> bool:
    """Whether a view that has what the other threat model needs has what the one needs."""
    return all(any(_implies(given, need) for given in other.needs) for need in one.needs)


def _implies(given: Need, need: Need) -> bool:
    """Whether a view that has one need has another: the same, the field of an entry, or a base of an algorithm."""
    if isinstance(given, type):
        return need == "algorithm" or (isinstance(need, type) and issubclass(given, need))
    return isinstance(need, str) and (given == need or given.startswith(f"{need}:"))


def lines(cells: Mapping[Place, Cell]) -> list[str]:
    """A line for each attack that is no baseline: how it stands, and whether a default audit runs it and why."""
    reasons = reasons_to_stay(cells)
    rows: list[Sequence[str]] = []
    for name, kind in REGISTRY.items():
        if kind.baseline:
            continue
        stands = standing(name, cells)
        lead = "" if math.isnan(stands.largest_lead) else f"{stands.largest_lead:.3f}"
        counts = [str(number) for number in (stands.cells, stands.settings, stands.best, stands.strictly_best)]
        rows.append((name, *counts, lead, "left out" if kind.for_comparison else "", reasons[name] or "NOT NEEDED"))
    header = ("attack", "cells", "settings", "best", "strictly", "lead", "default audit", "why it stays")
    return text_table(header, rows, [False, True, True, True, True, True, False, False])


def main() -> None:
    """Prints the table, and what is lost without the attacks that are left out now, and without those that could be."""
    cells = measured_cells(runs=[Path(folder) for folder in sys.argv[1:]])
    print("\n".join(lines(cells)))
    now = {name for name, kind in REGISTRY.items() if kind.for_comparison}
    possible = {name for name, reason in reasons_to_stay(cells).items() if not reason}
    for which, removed in (("are left out", now), ("could be left out", possible)):
        print(f"{len(cells)} cells; {len(lost_cells(removed, cells))} are lost without the {len(removed)} that {which}")


if __name__ == "__main__":
    main()
