"""The benchmark's figure: each piece as a ratio to its job's first."""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure


def draw_ratios(frame: pd.DataFrame, path: Path) -> None:
    """Draws one bar per piece, on a logarithmic axis.

    Args:
        frame: columns ``job``, ``what`` and ``ratio``.
        path: where the SVG goes.
    """
    names = [f"{job}: {what}" for job, what in zip(frame["job"], frame["what"], strict=True)]
    figure = Figure(figsize=(7, 0.4 * len(names) + 1), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh(names, frame["ratio"])
    axes.bar_label(bars, fmt="%.2fx", padding=3)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("times as fast (or as small) as the first piece of its job")
    axes.invert_yaxis()
    axes.margins(x=0.15)
    figure.savefig(path)
