"""Figures of the report, as SVG."""

import io
from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.figure import Figure
from torch import Tensor

from reports.results import Result

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's palette, told apart by colour-blind readers."""


def roc(grid: Sequence[float], rates: Mapping[str, Sequence[float]]) -> str:
    """Mean ROC curve of each attack: false-positive rates ``(G,)`` against true-positive rates ``(G,)``."""
    figure, axes = new_figure("false-positive rate", "true-positive rate")
    for colour, (name, values) in zip(COLOURS * 2, rates.items(), strict=False):
        axes.plot(grid, values, label=name, color=colour, lw=2)
    axes.plot([0, 1], [0, 1], color="#888888", ls=":", label="guessing")
    axes.legend(frameon=False, loc="lower right")
    return svg(figure)


def auc_against_scale(results: Sequence[Result]) -> str:
    """AUC against the scale of the injected noise, a curve per ranker and budget; a star is what a search found."""
    figure, axes = new_figure("scale of the injected noise", "AUC")
    names = list(dict.fromkeys(_ranker_and_budget(result) for result in results))
    for colour, name in zip(COLOURS * 2, names, strict=False):
        own = [result for result in results if _ranker_and_budget(result) == name]
        grid = sorted((r for r in own if r.setting["search"] == "grid"), key=lambda r: float(r.setting["scale"]))
        errors = [[r.mean - r.ci95[0] for r in grid], [r.ci95[1] - r.mean for r in grid]]
        scales = [r.setting["scale"] for r in grid]
        axes.errorbar(scales, [r.mean for r in grid], yerr=errors, marker="o", capsize=3, color=colour, label=name)
        found = [r for r in own if r.setting["search"] != "grid"]
        axes.plot([r.setting["scale"] for r in found], [r.mean for r in found], "*", ms=13, color=colour, ls="")
    axes.axhline(0.5, color="#888888", ls=":", label="guessing")
    axes.set_xscale("log")
    axes.legend(frameon=False)
    return svg(figure)


def _ranker_and_budget(result: Result) -> str:
    return f"{result.setting['ranker']}, epsilon {result.setting['epsilon']}"


def victim_distribution(values: Mapping[str, Sequence[float]], metric: str) -> str:
    """Every victim's score, sorted, one curve per attack: how many victims are how exposed."""
    figure, axes = new_figure("share of victims", metric)
    for colour, (name, scores) in zip(COLOURS * 2, values.items(), strict=False):
        ordered = sorted(scores)
        shares = [(index + 1) / len(ordered) for index in range(len(ordered))]
        axes.plot(shares, ordered, label=name, color=colour, lw=2, drawstyle="steps-post")
    axes.axhline(0.5, color="#888888", ls=":", label="guessing")
    axes.set_ylim(-0.03, 1.03)
    axes.legend(frameon=False, loc="lower right")
    return svg(figure)


def update_maps(maps: Mapping[str, tuple[Tensor, Tensor]]) -> str:
    """Maps of updates, one panel for each title: places ``(N, 2)`` of the honest ones and of the manipulated ones."""
    figure = Figure(figsize=(6, 3.2), layout="constrained")
    panels = figure.subplots(1, len(maps), squeeze=False)[0]
    for axes, (title, places) in zip(panels, maps.items(), strict=True):
        for points, name, marker, colour in zip(places, ("honest", "manipulated"), "ox", COLOURS, strict=False):
            axes.scatter(*points.T.tolist(), s=9, marker=marker, lw=0.7, color=colour, label=name)
        axes.set(title=title, xticks=[], yticks=[])
    panels[0].legend(frameon=False)
    return svg(figure)


def new_figure(horizontal: str, vertical: str) -> tuple[Figure, mpl.axes.Axes]:
    """An empty figure with its axes named."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(horizontal)
    axes.set_ylabel(vertical)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.2)
    return figure, axes


def svg(figure: Figure) -> str:
    """The figure as text to put into a page."""
    buffer = io.StringIO()
    # A fixed salt and no date: the same results give the same file.
    with mpl.rc_context({"svg.hashsalt": "fedleak"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()[buffer.getvalue().index("<svg") :]
