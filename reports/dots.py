"""Attacks beside one another: a line each, with a dot for every setting."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from reports.figures import COLOURS, svg
from reports.results import Result
from reports.settings import describe, differing


def beside(results: Sequence[Result], metric: str) -> str:
    """Each attack's mean in every setting, with intervals, and stars for the papers.

    Args:
        results: cells of one metric.
        metric: what is written on the axis.
    """
    keys = differing([r.setting for r in results])
    attacks = list(dict.fromkeys(r.attack for r in results))
    settings = list(dict.fromkeys(describe(r.setting, keys) for r in results))
    figure = Figure(figsize=(6, 1.2 + 0.32 * len(attacks)), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", alpha=0.2)
    for number, setting in enumerate(settings):
        cells = [r for r in results if describe(r.setting, keys) == setting]
        apart = 0.5 * (number + 1) / (len(settings) + 1) - 0.25
        at = [attacks.index(r.attack) + apart for r in cells]
        colour = COLOURS[number % len(COLOURS)]
        spread = [[r.mean - r.ci95[0] for r in cells], [r.ci95[1] - r.mean for r in cells]]
        axes.errorbar(
            *([r.mean for r in cells], at), xerr=spread, ls="", marker="o", ms=4, capsize=2, color=colour, label=setting
        )
        stars = [(r.paper.value, y) for y, r in zip(at, cells, strict=True) if r.paper is not None]
        if stars:
            axes.plot(*zip(*stars, strict=True), ls="", marker="*", ms=8, color=colour, mec="black", mew=0.4)
    axes.set_yticks(range(len(attacks)), attacks)
    axes.invert_yaxis()
    axes.set_xlabel(metric)
    if len(settings) > 1:
        figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return svg(figure)
