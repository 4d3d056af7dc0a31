"""Style, data and SVG output of figures."""

import io
import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass

import matplotlib as mpl
import pandas as pd
import seaborn as sns
import seaborn.objects as so
from matplotlib.figure import Figure

from protocol.metrics import metric as metric_of
from reports.tables import DATA

COLOURS = sns.color_palette("colorblind").as_hex()
"""Palette for colour-blind readers."""
STYLE = {**sns.axes_style("whitegrid"), "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": ".4"}
Drawing = tuple[str, str]
"""Caption and SVG text."""


@dataclass(frozen=True)
class Material:
    """Data of one figure.

    Attributes:
        rows: rows of one data set and metric, where the table has these columns.
        metric: metric.
        results: all results of the data set.
    """

    rows: pd.DataFrame
    metric: str
    results: pd.DataFrame


def drawn(plot: so.Plot, width: float, height: float) -> Figure:
    """Figure of a seaborn plot, with a size in inches, in the style of the reports."""
    figure = Figure(figsize=(width, height), layout="constrained")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # seaborn 0.13 uses deprecated pandas arguments
        plot.scale(color=so.Nominal("colorblind")).theme(STYLE).on(figure).plot()
    for legend in figure.legends:
        legend.set_loc("center left")
        legend.set_bbox_to_anchor((1.01, 0.5))
    return figure


def styled() -> AbstractContextManager[None]:
    """Context in which axes of matplotlib are made in the style of the reports."""
    return mpl.rc_context(STYLE)


def svg(figure: Figure) -> str:
    """SVG text of a figure, deterministic, with text that can be searched."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "fedleak", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, bbox_inches="tight")
    return buffer.getvalue()[buffer.getvalue().index("<svg") :]


def with_guessing(figure: Figure, name: str, *, horizontal: bool = True) -> Figure:
    """The figure with a dotted line at the value of guessing, if the metric has one."""
    guessing = metric_of(name).guessing
    if guessing is not None:
        for axes in figure.axes:
            (axes.axhline if horizontal else axes.axvline)(guessing, color=".5", ls=":")
    return figure


def of_data(rows: pd.DataFrame) -> str:
    """Start of a caption: the name of the rows' data set."""
    return f"{rows[DATA].iloc[0]}: " if DATA in rows else ""
