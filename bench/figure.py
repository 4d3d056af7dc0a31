"""The benchmark's figure: each piece as a ratio to the first one of its job."""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter


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
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("times as fast (or as small) as the first piece of its job")
    axes.invert_yaxis()
    axes.margins(x=0.15)
    figure.savefig(path)


def draw_scaling(frame: pd.DataFrame, path: Path) -> None:
    """Draws seconds and peak memory of a round, and the memory of its data, against the number of clients.

    Args:
        frame: rows of `bench.scaling`: ``job``, ``what`` (clients) and ``value``.
        path: where the SVG goes.
    """
    figure = Figure(figsize=(7, 3), layout="constrained")
    times, memory = figure.subplots(1, 2)
    for axes, unit, label in ((times, "s", "seconds a round"), (memory, "MiB", "MiB")):
        for job, rows in frame[frame["unit"] == unit].groupby("job", sort=False):
            clients = [int(what.replace(",", "")) for what in rows["what"]]
            axes.plot(clients, rows["value"], marker="o", label=str(job).removeprefix("clients in a round, "))
        axes.set(xlabel="clients in a round", ylabel=label, xlim=0, ylim=0)
        axes.legend()
    figure.savefig(path)
