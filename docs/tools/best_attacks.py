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

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.tools.attack_cells import PUBLISHED_TABLES, Cell, CellKey, measured_cells
from fedleak.core.threat_model import Need, ThreatModel
from fedleak.evaluation.registry import REGISTRY
from fedleak.reports.text_table import text_table

TIED = 0.005
"""Lead below which two attacks count as tied in the printed table; what may be left out is decided without it."""
FEWEST_CELLS = 3
"""Cells that an attack must have been measured in before it may be left out: fewer say too little."""
FEWEST_SETTINGS = 2
"""Settings, of one table or several, that these cells must be of."""


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


def standing(name: str, cells: Mapping[CellKey, Cell]) -> Standing:
    """How an attack stands in all cells; results of others by its side count, whether a default audit runs them."""
    best = strictly_best = 0
    largest_lead = math.nan
    keys = [key for key, cell in cells.items() if name in cell]
    for key in keys:
        rivals = [value.leakage for attack, value in cells[key].items() if attack != name]
        # Where it is alone, it leads without end; that is no lead over another one.
        lead = cells[key][name].leakage - max(rivals, default=-math.inf)
        best += lead >= -TIED
        strictly_best += lead > TIED
        if rivals:
            largest_lead = lead if math.isnan(largest_lead) else max(largest_lead, lead)
    settings = len({(table, setting) for table, _, _, setting in keys})
    return Standing(len(keys), settings, best, strictly_best, largest_lead)


def lost_cells(removed: Collection[str], cells: Mapping[CellKey, Cell]) -> dict[CellKey, float]:
    """The cells in which an audit without some attacks finds less, and how much less of the metric.

    Infinite where nothing is left. A slow attack makes up for none that is not: a default audit runs no slow ones.
    """
    lost: dict[CellKey, float] = {}
    for key, cell in cells.items():
        # An audit by default, and one with --slow.
        for runs_slow in (False, True):
            before = {name: value for name, value in cell.items() if runs_slow or not REGISTRY[name].slow}
            after = {name: value for name, value in before.items() if name not in removed}
            if len(after) == len(before):
                continue
            if not after:
                lost[key] = math.inf
            elif _is_less(after, before):
                lost[key] = max(_highest(before) - _highest(after), lost.get(key, 0.0))
    return lost


def _is_less(after: Cell, before: Cell) -> bool:
    """Whether attacks reach less than others in a cell: the best answer has a lower rank, or the value of the gate."""
    best_after = max(value.rank for value in after.values())
    best_before = max(value.rank for value in before.values())
    return best_after < best_before or _highest(after) < _highest(before)


def _highest(cell: Cell) -> float:
    return max(value.leakage for value in cell.values())


def why_never(name: str, cells: Mapping[CellKey, Cell]) -> str:
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
    is_published = any(name in cell for (table, *_), cell in cells.items() if table.startswith(PUBLISHED_TABLES))
    if not is_published:
        return "no published table has it, and frozen ones are small"
    measured = standing(name, cells)
    if measured.cells < FEWEST_CELLS or measured.settings < FEWEST_SETTINGS:
        return f"{measured.cells} cells of {measured.settings} settings say too little"
    return ""


def reasons_to_stay(cells: Mapping[CellKey, Cell]) -> dict[str, str]:
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


def _removable(candidates: Collection[str], cells: Mapping[CellKey, Cell]) -> set[str]:
    """The largest set of candidates of which none is missed when all of them are removed."""
    removed = {*candidates}
    # 1. The one that is missed most comes back first: it may be a substitute of the others.
    while True:
        counts = {name: len(_missed(name, removed, cells)) for name in removed}
        missed = [name for name, count in counts.items() if count > 0]
        if not missed:
            break
        removed.remove(min(missed, key=lambda name: (-counts[name], name)))
    # 2. Others that came back later may be substitutes of those that came back before.
    for name in candidates:
        together = {*removed, name}
        if not any(_missed(attack, together, cells) for attack in together):
            removed = together
    return removed


def _missed(name: str, removed: Collection[str], cells: Mapping[CellKey, Cell]) -> list[CellKey]:
    """The cells of an attack in which its substitutes are not as good as it is.

    A substitute is not removed, and runs wherever the attack does: it needs no more, and is not slow if that is not.
    """
    kind = REGISTRY[name]
    substitutes = set()
    for candidate, candidate_kind in REGISTRY.items():
        runs_by_default = kind.slow or not candidate_kind.slow
        runs_wherever = needs_no_more(candidate_kind.threat_model, kind.threat_model)
        if candidate not in removed and runs_by_default and runs_wherever:
            substitutes.add(candidate)
    missed = []
    for key, cell in cells.items():
        if name not in cell:
            continue
        of_substitutes = {attack: value for attack, value in cell.items() if attack in substitutes}
        if not of_substitutes or _is_less(of_substitutes, {name: cell[name]}):
            missed.append(key)
    return missed


def _why(missed: Collection[CellKey], lost: Mapping[CellKey, float]) -> str:
    """Why an attack stays that is better in some cells than its substitutes, if some cells are lost without it."""
    if not missed:
        return "one that is left out has no other substitute"
    losses = [lost[key] for key in missed if key in lost]
    if not losses:
        return f"where a better one lacks what it needs: in {_counted(len(missed))}"
    largest_loss = max(losses)
    by = "the only one in some" if math.isinf(largest_loss) else f"by up to {largest_loss:.2g}"
    return f"best in {_counted(len(losses))}, {by}"


def _counted(cells: int) -> str:
    if cells == 1:
        return "1 cell"
    return f"{cells} cells"


def needs_no_more(substitute: ThreatModel, replaced: ThreatModel) -> bool:
    """Whether a view that has what the replaced threat model needs has what the substitute needs."""

    def is_met(need: Need) -> bool:
        return any(_implies(present, need) for present in replaced.needs)

    return all(map(is_met, substitute.needs))


def _implies(present: Need, need: Need) -> bool:
    """Whether a view that has one need has another: the same, the field of an entry, or a base of an algorithm."""
    if isinstance(present, type):
        return need == "algorithm" or (isinstance(need, type) and issubclass(present, need))
    return isinstance(need, str) and (present == need or present.startswith(f"{need}:"))


def lines(cells: Mapping[CellKey, Cell]) -> list[str]:
    """A line for each attack that is no baseline: how it stands, and whether a default audit runs it and why."""
    reasons = reasons_to_stay(cells)
    rows: list[Sequence[str]] = []
    for name, kind in REGISTRY.items():
        if kind.baseline:
            continue
        stands = standing(name, cells)
        row = (
            name,
            str(stands.cells),
            str(stands.settings),
            str(stands.best),
            str(stands.strictly_best),
            "" if math.isnan(stands.largest_lead) else f"{stands.largest_lead:.3f}",
            "left out" if kind.for_comparison else "",
            reasons[name] or "NOT NEEDED",
        )
        rows.append(row)
    header = ("attack", "cells", "settings", "best", "strictly", "lead", "default audit", "why it stays")
    return text_table(header, rows, numeric=[False, True, True, True, True, True, False, False])


def main() -> None:
    """Prints the table, and what is lost without the attacks that are left out now, and without those that could be."""
    cells = measured_cells(runs=[Path(folder) for folder in sys.argv[1:]])
    print("\n".join(lines(cells)))
    left_out = {name for name, kind in REGISTRY.items() if kind.for_comparison}
    possible = {name for name, reason in reasons_to_stay(cells).items() if not reason}
    for which, removed in (("are left out", left_out), ("could be left out", possible)):
        lost = lost_cells(removed, cells)
        print(f"{len(cells)} cells; {len(lost)} are lost without the {len(removed)} that {which}")


if __name__ == "__main__":
    main()
