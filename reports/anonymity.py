"""What an attack on anonymity found, in a sentence; and what hiding costs, as numbers and a figure."""

from collections import defaultdict
from collections.abc import Sequence

import torch

from attacks.metrics import bootstrap
from datamodules.keys import generator_for
from reports.figures import COLOURS, new_figure, svg
from reports.judging import lower_is_better
from reports.results import Result, VictimRow
from reports.settings import describe
from reports.tables import attacks_then_baselines

MODEL = "global-model"
"""Under which the quality of the trained model stands."""
_QUALITIES = frozenset({"top5", "mae", "ap-labels"})
_NONE = "none"
"""The mitigation beside which the others are measured."""
_PLAIN = frozenset({"iid"})
"""Priors that are a control and no leak."""


def anonymity_headline(results: Sequence[Result]) -> str | None:
    """The attack that names devices best; None where nothing was named."""
    cells = [r for r in results if r.metric == "times-chance" and r.setting.get("prior") not in _PLAIN]
    attacks, _ = attacks_then_baselines([r for r in cells if "shuffled" not in r.setting])
    naming = [r for r in attacks if not r.attack.startswith("matching")] or attacks
    if not naming:
        return None
    best = max(naming, key=lambda r: r.mean)
    precision = next((r for r in results if r.metric == "ap" and _same(r, best)), None)
    beside = "" if precision is None else f", mean average precision {precision.mean:.3f}"
    what = "which messages are of one user" if best.attack.startswith("matching") else "whose device sent a message"
    told = "can tell" if best.ci95[0] > 2 else "can hardly tell"
    return (
        f"On {describe(best.setting)}, the server {told} from the messages alone {what} ({best.attack}: "
        f"{best.mean:.1f} times chance, 95% interval {best.ci95[0]:.1f} to {best.ci95[1]:.1f}{beside}, "
        f"n = {best.n} users)."
    )


def utilities(rows: Sequence[VictimRow]) -> list[Result]:
    """The quality of each trained model over that without mitigation (section 7.2), by cell; users are resampled.

    Of an error, which is better when lower, the quotient is turned over.
    """
    cells: dict[tuple[str, str, str], list[VictimRow]] = defaultdict(list)
    for row in rows:
        if row.attack == MODEL and "mitigation" in row.setting and row.metric in _QUALITIES:
            rest = {k: v for k, v in row.setting.items() if k not in ("mitigation", "amount")}
            cells[repr(sorted(rest.items())), repr(row.setting), row.metric].append(row)
    plain = {key[0]: cell for key, cell in cells.items() if cell[0].setting["mitigation"] == _NONE}
    return [_utility(cell, plain[key[0]]) for key, cell in cells.items() if key[0] in plain]


def _utility(cell: Sequence[VictimRow], plain: Sequence[VictimRow]) -> Result:
    before = {(row.seed, row.victim): row.value for row in plain}
    paired = [(row.value, before[row.seed, row.victim]) for row in cell if (row.seed, row.victim) in before]
    now, then = torch.tensor(paired, dtype=torch.float64).T
    if lower_is_better(cell[0].metric):
        now, then = then, now
    # The quotient of means is the mean of these, up to how users are drawn.
    summary = bootstrap(now / then.mean(), generator=generator_for(0, "utility"))
    interval = (summary.low, summary.high)
    return Result(MODEL, dict(cell[0].setting), "utility", summary.mean, summary.std, interval, summary.n, 0.0)


def privacy_utility_figures(results: Sequence[Result]) -> list[tuple[str, str]]:
    """Utility against the adversary's times of chance, a curve for each mitigation (figure 12), for each attack."""
    utility = {repr(r.setting): r for r in results if r.metric == "utility"}
    named = [r for r in results if r.metric == "times-chance" and repr(r.setting) in utility]
    attacks, _ = attacks_then_baselines(named)
    drawn = []
    for name in dict.fromkeys(r.attack for r in attacks):
        figure, axes = new_figure("adversary's average precision, times chance", "utility, share of that without")
        own = [r for r in attacks if r.attack == name]
        origin = [r for r in own if r.setting["mitigation"] == _NONE]
        kinds = [kind for kind in dict.fromkeys(r.setting["mitigation"] for r in own) if kind != _NONE]
        for colour, kind in zip(COLOURS * 2, kinds, strict=False):
            some = [r for r in own if r.setting["mitigation"] == kind]
            curve = origin + sorted(some, key=lambda r: float(r.setting["amount"]))
            heights = [utility[repr(r.setting)] for r in curve]
            axes.errorbar(
                [r.mean for r in curve],
                [u.mean for u in heights],
                xerr=[[r.mean - r.ci95[0] for r in curve], [r.ci95[1] - r.mean for r in curve]],
                yerr=[[u.mean - u.ci95[0] for u in heights], [u.ci95[1] - u.mean for u in heights]],
                **{"label": kind, "color": colour, "marker": "o", "ms": 3, "lw": 1.3, "elinewidth": 0.6},
            )
        axes.axvline(1, color="#888888", ls=":", label="guessing")
        axes.legend(frameon=False)
        drawn.append((f"Privacy and utility against {name}: better towards the upper left.", svg(figure)))
    return drawn


def _same(one: Result, other: Result) -> bool:
    return one.attack == other.attack and one.setting == other.setting
