"""Scores against a numeric key of the setting: curves with intervals, and where one attack meets another's score."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from datamodules.keys import generator_for
from reports.figures import COLOURS, new_figure, svg
from reports.judging import BASELINES
from reports.results import Result, VictimRow
from reports.settings import describe
from reports.tables import attacks_then_baselines

AXES = {
    "interactions": "interactions T",
    "of_bound": "interactions, as a multiple of the theorem's T",
    "rounds": "honest rounds of the client",
}
"""Keys of a setting that are an axis, and what is written on it."""
REFERENCE = "pac"
"""The published attack, whose error others are asked to reach."""
REFERENCES = (100, 1000, 10000)
"""Numbers of interactions of the published attack whose error the others must reach."""
_RESAMPLES = 1000
_TOLD = 0.05
"""Error from which the headline calls a vector told; it names the fewest interactions that suffice."""


def axis_of(setting: Mapping[str, Any]) -> str | None:
    """The key of a setting that is an axis, None where there is none."""
    return next((key for key in AXES if key in setting), None)


def curve_figures(results: Sequence[Result], metrics: Sequence[str]) -> list[tuple[str, str]]:
    """One figure for each metric and setting but for its axis; a theorem's T is a vertical line, its promise a level.

    Args:
        results: all cells of the run.
        metrics: the metrics to draw.

    Returns:
        Captions and SVG texts.
    """
    groups: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for result in results:
        axis = axis_of(result.setting)
        if axis is not None and result.metric in metrics:
            groups[axis, result.metric, _rest(result.setting, axis)].append(result)
    drawn = []
    for (axis, metric, rest), cells in groups.items():
        if len({cell.setting[axis] for cell in cells}) > 1:
            bounds = [r.mean for r in results if r.metric == "bound-of-all" and _rest(r.setting, None) == rest]
            lines = {"of_bound": [1.0], "interactions": bounds}.get(axis, [])
            caption = describe(cells[0].setting, [key for key in cells[0].setting if key != axis])
            drawn.append(
                (f"{metric} against {AXES[axis]}; {caption}. Bands: 95% intervals.", _draw(cells, axis, lines))
            )
    return drawn


def vector_headline(results: Sequence[Result]) -> str | None:
    """What a server learned of private vectors, in a sentence; None where nothing speaks of them."""
    attacks, baselines = attacks_then_baselines([r for r in results if r.metric == "error"])
    if not attacks:
        return None
    told = [r for r in attacks if r.mean <= _TOLD and "of_bound" not in r.setting]
    best = min(told, key=_cost) if told else min(attacks, key=lambda r: r.mean)
    own = [r.mean for r in baselines if r.attack == "mean-item" and r.setting["data"] == best.setting["data"]]
    beside = f"; its own model alone gives {min(own):.3f}" if own else ""
    return (
        f"On {describe(best.setting)}, what the server made of a client's messages disagrees with the client's own"
        f" model, which never left it, on a share {best.mean:.3f} of the items ({best.attack}, 95% interval"
        f" {best.ci95[0]:.3f} to {best.ci95[1]:.3f}, n = {best.n} users; guessing gives 0.5{beside})."
    )


def _cost(result: Result) -> tuple[float, float]:
    axis = axis_of(result.setting)
    return (math.inf if axis is None else float(result.setting[axis])), result.mean


def interactions_needed(rows: Sequence[VictimRow], *, metric: str = "error") -> list[Result]:
    """After how many interactions each attack is as good as the published one after 100, 1,000 or 10,000.

    A mean curve is read between two points on a straight line in log T. The interval is a bootstrap over victims, in
    which both the goal and the curve are made anew. An attack that is as good at the first point has that point's T;
    one that never is has none.

    Args:
        rows: scores of every victim; those without ``interactions`` in their setting are left out.
        metric: the score, of which less is better.

    Returns:
        Cells of metric ``interactions`` (T needed) and ``times-fewer`` (how many times fewer that is).
    """
    groups: dict[str, list[VictimRow]] = defaultdict(list)
    for row in rows:
        if row.metric == metric and "interactions" in row.setting and row.attack not in BASELINES:
            groups[_rest(row.setting, "interactions")].append(row)
    return [result for group in groups.values() for result in _crossings(group)]


def _crossings(rows: Sequence[VictimRow]) -> list[Result]:
    curves = _victim_curves(rows)
    if REFERENCE not in curves:
        return []
    points = torch.tensor(sorted({row.setting["interactions"] for row in rows}), dtype=torch.float64)
    victims = curves[REFERENCE].shape[0]
    generator = generator_for(0, "interactions-needed")
    draws = torch.randint(victims, (_RESAMPLES, victims), generator=generator)
    base = {key: value for key, value in rows[0].setting.items() if key != "interactions"}
    found = []
    for reference in (r for r in REFERENCES if r in points.tolist()):
        at = points.tolist().index(reference)
        for attack, values in curves.items():
            if attack == REFERENCE:
                continue
            needed = _needed(values.mean(0)[None], curves[REFERENCE].mean(0)[None, at], points)
            again = _needed(values[draws].mean(1), curves[REFERENCE][draws].mean(1)[:, at], points)
            setting = {**base, "as_pac_after": reference}
            found += [
                _result(attack, setting, "interactions", needed[0], again, victims),
                _result(attack, setting, "times-fewer", reference / needed[0], reference / again, victims),
            ]
    return found


def _victim_curves(rows: Sequence[VictimRow]) -> dict[str, Tensor]:
    """By attack ``(V, T)`` means over a victim's repetitions, in ascending T; of victims who have every point."""
    sums: dict[str, dict[tuple[int, int], dict[float, list[float]]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        sums[row.attack][row.seed, row.victim].setdefault(row.setting["interactions"], []).append(row.value)
    points = sorted({row.setting["interactions"] for row in rows})
    whole = set.intersection(*({v for v, c in victims.items() if len(c) == len(points)} for victims in sums.values()))
    return {
        attack: torch.tensor(
            [[sum(curves[v][t]) / len(curves[v][t]) for t in points] for v in sorted(whole)], dtype=torch.float64
        )
        for attack, curves in sums.items()
    }


def _needed(curves: Tensor, goals: Tensor, points: Tensor) -> Tensor:
    """``(K,)`` where curves ``(K, T)`` first come down to goals ``(K,)``; infinite where they never do."""
    reached = curves <= goals[:, None]
    first = reached.int().argmax(1)
    before = (first - 1).clamp(min=0)
    high, low = (curves.gather(1, place[:, None])[:, 0] for place in (before, first))
    share = ((high - goals) / (high - low).clamp(min=1e-300)).clamp(0, 1)
    logs = points.log()
    value = torch.exp(logs[before] + share * (logs[first] - logs[before]))
    value = torch.where(first == 0, points[0], value)
    return torch.where(reached.any(1), value, torch.inf)


def _result(attack: str, setting: dict[str, Any], metric: str, value: Tensor, again: Tensor, victims: int) -> Result:
    """A cell; what is infinitely much, or no times fewer, was never reached and is no number."""
    ends = again.sort().values[[int(0.025 * len(again)), int(0.975 * len(again)) - 1]].tolist()
    low, high = (end if 0 < end < math.inf else math.nan for end in ends)
    mean = float(value) if 0 < value < math.inf else math.nan
    return Result(attack, setting, metric, mean, float(again.std()), (low, high), victims, 0.0)


def _rest(setting: Mapping[str, Any], axis: str | None) -> str:
    return repr(sorted((key, value) for key, value in setting.items() if key != axis))


def _draw(cells: Sequence[Result], axis: str, lines: Sequence[float]) -> str:
    figure, axes = new_figure(AXES[axis], cells[0].metric)
    names = list(dict.fromkeys(cell.attack for cell in cells))
    for colour, name in zip(COLOURS * 2, names, strict=False):
        curve = sorted((c for c in cells if c.attack == name), key=lambda c: float(c.setting[axis]))
        places = [float(c.setting[axis]) for c in curve]
        if name in BASELINES:
            axes.axhline(curve[-1].mean, color=colour, ls="-.", lw=1, label=name)
            continue
        axes.plot(places, [c.mean for c in curve], label=name, color=colour, lw=2, marker=".")
        axes.fill_between(places, [c.ci95[0] for c in curve], [c.ci95[1] for c in curve], color=colour, alpha=0.2, lw=0)
    last = max(float(cell.setting[axis]) for cell in cells)
    # A bound too far beyond what was tried would leave no room for the curves; the table has its number.
    for line in (line for line in lines if line <= 1000 * last):
        axes.axvline(line, color="#000000", ls="--", label="the theorem's T")
    promised = {c.setting["delta"] for c in cells if c.metric == "success" and "delta" in c.setting}
    for delta in promised:
        axes.axhline(1 - delta, color="#888888", ls=":", label="promised from there on")
    axes.set_xscale("log")
    axes.legend(frameon=False)
    return svg(figure)
