"""What figures are drawn from and with, and drawings as text to put into a page."""

import io
import warnings
from dataclasses import dataclass

import matplotlib as mpl
import pandas as pd
import seaborn as sns
import seaborn.objects as so
from matplotlib.figure import Figure

from protocol.metrics import metric as metric_of
from reports.tables import DATA

COLOURS = sns.color_palette("colorblind").as_hex()
"""A palette that colour-blind readers can tell apart."""
STYLE = {**sns.axes_style("whitegrid"), "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": ".4"}


Drawing = tuple[str, str]
"""Caption and SVG text."""


@dataclass(frozen=True)
class Material:
    """What one figure is drawn from.

    Attributes:
        rows: of one data set and metric, where the table has them.
        metric: the metric.
        results: all results of the data set.
    """

    rows: pd.DataFrame
    metric: str
    results: pd.DataFrame


def drawn(plot: so.Plot, width: float, height: float) -> Figure:
    """A plot of seaborn on a figure of so many inches, in the style of all reports."""
    figure = Figure(figsize=(width, height), layout="constrained")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # seaborn 0.13 calls pandas as pandas 2 wanted it
        plot.scale(color=so.Nominal("colorblind")).theme(STYLE).on(figure).plot()
    for legend in figure.legends:
        legend.set_loc("center left")
        legend.set_bbox_to_anchor((1.01, 0.5))
    return figure


def svg(figure: Figure) -> str:
    """The figure as SVG with texts that can be searched and read aloud; the same results give the same text."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "fedleak", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, bbox_inches="tight")
    return buffer.getvalue()[buffer.getvalue().index("<svg") :]


def with_guessing(figure: Figure, name: str, *, horizontal: bool = True) -> Figure:
    """With a dotted line where guessing is, if the metric knows it."""
    guessing = metric_of(name).guessing
    if guessing is not None:
        for axes in figure.axes:
            (axes.axhline if horizontal else axes.axvline)(guessing, color=".5", ls=":")
    return figure


def of_data(rows: pd.DataFrame) -> str:
    """The name of the rows' data set, as a caption begins with it."""
    return f"{rows[DATA].iloc[0]}: " if DATA in rows else ""
