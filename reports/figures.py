"""Figures of the report, as SVG."""

import io
from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.figure import Figure

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
    return as_svg(figure)


def auc_against_epsilon(results: Sequence[Result]) -> str:
    """AUC of each attack against the privacy budget, with intervals and the paper's points."""
    figure, axes = new_figure("privacy budget epsilon", "AUC")
    names = list(dict.fromkeys(result.attack for result in results))
    for colour, name in zip(COLOURS * 2, names, strict=False):
        cells = sorted((r for r in results if r.attack == name), key=lambda r: float(r.setting["epsilon"]))
        budgets = [float(r.setting["epsilon"]) for r in cells]
        below = [r.mean - r.ci95[0] for r in cells]
        above = [r.ci95[1] - r.mean for r in cells]
        axes.errorbar(
            budgets, [r.mean for r in cells], yerr=[below, above], marker="o", capsize=3, color=colour, label=name
        )
    papers = {float(r.setting["epsilon"]): r.paper.value for r in results if r.paper is not None}
    axes.plot(list(papers), list(papers.values()), "k*", ms=11, label="paper", ls="")
    axes.axhline(0.5, color="#888888", ls=":", label="guessing")
    axes.set_xscale("log")
    axes.legend(frameon=False)
    return as_svg(figure)


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
    return as_svg(figure)


def new_figure(horizontal: str, vertical: str) -> tuple[Figure, mpl.axes.Axes]:
    """An empty figure with its axes named."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(horizontal)
    axes.set_ylabel(vertical)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.2)
    return figure, axes


def as_svg(figure: Figure) -> str:
    """A figure as the text of an SVG element."""
    buffer = io.StringIO()
    # A fixed salt and no date: the same results give the same file.
    with mpl.rc_context({"svg.hashsalt": "fedleak"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()[buffer.getvalue().index("<svg") :]
