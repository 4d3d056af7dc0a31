"""Data of figures, their style, and a drawn figure with its caption."""

import html
import io
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
import pandas as pd
import seaborn as sns
import seaborn.objects as so
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedleak.core.metric_table import metric as metric_of
from fedleak.evaluation.captioned_figure import KINDS, CaptionedFigure, Kind
from fedleak.evaluation.result_names import DATA
from fedleak.reports.figures.line_styles import LineStyle

_FIXED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""Metadata without which the same figure gives the same bytes."""
STYLE = {**sns.axes_style("whitegrid"), "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": ".4"}


@dataclass(frozen=True)
class FigureData:
    """Data of one figure.

    Attributes:
        rows: rows of one data set, question and metric, where the table has these columns.
        metric: metric.
        results: all results of the data set.
        styles: style of each line.
        scores: scores of the clients by the same metric; empty where they are unknown or several metrics are drawn.
        clients: label of each client by its number, see `fedleak.evaluation.persons.client_labels`; empty if the figure
            may show no client, only numbers over several.
    """

    rows: pd.DataFrame
    metric: str
    results: pd.DataFrame
    styles: Mapping[str, LineStyle]
    scores: pd.DataFrame = field(default_factory=pd.DataFrame)
    clients: Mapping[int, str] = field(default_factory=dict)

    @property
    def colours(self) -> dict[str, str]:
        """Colour of each line."""
        return {name: style.colour for name, style in self.styles.items()}


@dataclass
class Mark:
    """What the page says of a part of a figure: a text under the mouse, and the label of the client it is about."""

    text: str
    client: str = ""


@dataclass(kw_only=True)
class DrawnFigure(CaptionedFigure):
    """Captioned figure of matplotlib; its pickle holds the files, which other processes could not draw alike.

    `marks` are by the group id of the artist in the figure, see `Artist.set_gid`.
    """

    figure: Figure = field(compare=False, repr=False)
    marks: Mapping[str, Mark] = field(default_factory=dict, compare=False, repr=False)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return KINDS

    @property
    def drawn_here(self) -> bool:
        return True

    def file(self, kind: Kind) -> bytes:
        """Content of a file of the figure, deterministic, with text that can be searched."""
        if kind not in self.files:
            buffer = io.BytesIO()
            with mpl.rc_context({"svg.hashsalt": "fedleak", "svg.fonttype": "none", "pdf.fonttype": 42}):
                self.figure.savefig(buffer, format=kind, metadata=_FIXED[kind], bbox_inches="tight")
            content = buffer.getvalue()
            if kind == "svg" and self.marks:
                content = _marked(content, self.marks)
            self.files[kind] = content
        return self.files[kind]

    def __reduce__(self) -> tuple[Any, ...]:
        return CaptionedFigure.of_record, (self.record(),)


def mark(artist: Artist, marks: dict[str, Mark], text: str, client: str = "") -> None:
    """Adds a mark of an artist to `marks`."""
    name = f"mark-{len(marks)}"
    artist.set_gid(name)
    marks[name] = Mark(text, client)


def _marked(svg: bytes, marks: Mapping[str, Mark]) -> bytes:
    """SVG whose marked groups have their text and client instead of an id, which other figures of a page may have."""

    def marked_group(group: re.Match[str]) -> str:
        mark = marks.get(group[1])
        if mark is None:
            return group[0]
        attributes = ""
        if mark.client:
            attributes = f' class="client" data-client="{html.escape(mark.client)}"'
        return f"<g{attributes}><title>{html.escape(mark.text)}</title>"

    return re.sub(r'<g id="([^"]*)">', marked_group, svg.decode()).encode()


def drawn(plot: so.Plot, width: float, height: float, colours: Mapping[str, str] | None = None) -> Figure:
    """Figure of a seaborn plot, with a size in inches, in the style of the reports; without colours, in a palette."""
    figure = Figure(figsize=(width, height), layout="constrained")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # seaborn 0.13 uses deprecated pandas arguments
        palette = so.Nominal("colorblind" if colours is None else dict(colours))
        plot.scale(color=palette).theme(STYLE).on(figure).plot()
    for legend in figure.legends:
        legend.set_loc("center left")
        legend.set_bbox_to_anchor((1.01, 0.5))
    return figure


def styled(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """Figure with a size in inches and its axes ``(rows, columns)``, in the style of the reports."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False, **options)


def with_guessing(figure: Figure, name: str) -> Figure:
    """The figure with a dotted line at the value of guessing, if the metric has one."""
    guessing = metric_of(name).guessing
    if guessing is not None:
        for axes in figure.axes:
            axes.axhline(guessing, color=".5", ls=":")
    return figure


def errors(rows: pd.DataFrame, side: str = "") -> list[pd.Series]:
    """Distances from the means down to the lower and up to the upper ends of their intervals.

    Args:
        rows: rows with ``mean``, ``low`` and ``high``.
        side: end of these columns' names.
    """
    mean = rows[f"mean{side}"]
    # By rounding, an end may lie a little beyond the mean: matplotlib takes no negative length.
    below = (mean - rows[f"low{side}"]).clip(lower=0)
    above = (rows[f"high{side}"] - mean).clip(lower=0)
    return [below, above]


def of_papers(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with ``paper`` only where it is the value of the same attack; attacks of this project have none."""
    if "paper" not in rows:
        return rows.assign(paper=float("nan"))
    return rows.assign(paper=rows["paper"].where(rows["role"] != "ours"))


def legend_right(axes: Axes) -> None:
    """Draws a legend to the right of the axes, if anything has a label; a wide one widens the figure."""
    _, labels = axes.get_legend_handles_labels()
    if not labels:
        return
    legend = axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, handlelength=3)
    figure = axes.figure
    if isinstance(figure, Figure):
        # A legend may take half of the width; what it needs beyond that is added, so that the axes stay wide.
        width = figure.get_figwidth()
        legend_width = legend.get_window_extent().width / figure.dpi
        figure.set_figwidth(width + max(0, legend_width - width / 2))


def intervals(rows: pd.DataFrame, side: str = "") -> str:
    """End of a caption: that intervals are drawn; empty where no row has one."""
    low = rows[f"low{side}"]
    high = rows[f"high{side}"]
    if bool((low < high).any()):
        return " with 95% intervals"
    return ""


def of_data(rows: pd.DataFrame) -> str:
    """Start of a caption: the name of the rows' data set."""
    if DATA not in rows:
        return ""
    return f"{rows[DATA].iloc[0]}: "
