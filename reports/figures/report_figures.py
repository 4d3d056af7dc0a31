"""Figures of every report, each with the data that it requires.

Figures are drawn for the metrics that judge attacks and for the first two metrics of a run, so a new metric needs no
code. A new kind of figure is a function and an entry of `FIGURES`.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from attacks.estimates import ROC_GRID
from evaluation.captioned_figure import CaptionedFigure
from evaluation.posterior.posterior import PROBABILITY
from evaluation.runner import Evaluation
from evaluation.scores import AttackInfo
from protocol.metric_table import metric as metric_of
from reports.figures.below_bounds import below_bounds
from reports.figures.by_attack import by_attack
from reports.figures.by_setting import by_setting
from reports.figures.compositions import compositions
from reports.figures.curves import distribution, reliability, roc
from reports.figures.figure_data import DrawnFigure, FigureData
from reports.figures.images import reconstructions
from reports.figures.line_styles import line_styles
from reports.figures.trade_offs import (
    DEFENCE,
    MANIPULATION,
    MITIGATIONS,
    against_rank,
    detectability,
    mitigations,
    privacy_and_utility,
    signal_kept,
)
from reports.headline import headline
from reports.sections import by_question
from reports.tables import DATA, axis


@dataclass(frozen=True, kw_only=True)
class FigureKind:
    """Kind of figure and its requirements.

    Attributes:
        table: ``results``; ``scores``, one row per victim; ``roc``, with ``label``, ``fpr`` and ``tpr``;
            ``reliability``, with ``label`` and the bins of an attack with priors; or ``profiles``, see
            `evaluation.runner.Evaluation`.
        draw: function that makes the drawings.
        metric: the only metric to draw it for, None for all shown.
        columns: columns that the rows must have.
        axis: whether it requires a varying numeric setting, or none; None for either.
    """

    table: Literal["results", "scores", "roc", "reliability", "profiles"]
    draw: Callable[[FigureData], list[DrawnFigure]]
    metric: str | None = None
    columns: tuple[str, ...] = ()
    axis: bool | None = None

    def fits(self, rows: pd.DataFrame) -> bool:
        """Whether the rows meet the requirements."""
        given = set(self.columns) <= set(rows.columns)
        return given and len(rows) > 0 and (self.axis is None or self.axis == (axis(rows) is not None))


def report_figures(evaluation: Evaluation, results: pd.DataFrame, metrics: Sequence[str]) -> list[CaptionedFigure]:
    """All figures for which a run has the data: the headline's first, at the end reconstructions and those of steps."""
    profiles = evaluation.profiles
    if len(profiles):
        profiles = profiles.assign(role=[evaluation.lines.get(name, AttackInfo()).role for name in profiles["attack"]])
    tables = {"results": results, "scores": evaluation.scores, "roc": roc_table(evaluation), "profiles": profiles}
    tables["reliability"] = reliability_table(evaluation)
    shown = dict.fromkeys([*metrics[:2], *(name for name in metrics if metric_of(name).judged)])
    styles, first = line_styles(results), headline(results[results["metric"].isin(metrics)])
    found: list[tuple[bool, DrawnFigure]] = []
    for figure in FIGURES:
        table = tables[figure.table]
        for name in ([figure.metric] if figure.metric else shown) if "metric" in table else [""]:
            rows = table[table["metric"] == name] if name else table
            for data, part in rows.groupby(DATA, sort=False) if DATA in rows else [("", rows)]:
                of_data = results[results[DATA] == data] if data else results
                for question, lines in _lines(of_data, name):
                    own = part[part["attack"].isin(lines)] if lines else part
                    drawn = figure.draw(FigureData(own, name, of_data, styles)) if figure.fits(own) else []
                    about = (question, name, data)
                    main = figure.table == "results" and about == (first.question, first.metric, first.data or "")
                    for drawing in drawn:
                        several = f"-{data!s}" if data and results[DATA].nunique() > 1 else ""
                        found.append((main, dataclasses.replace(drawing, name=f"{drawing.name}{several}")))
    found.sort(key=lambda one: not one[0])
    pictures = [reconstructions(label, images) for label, images in evaluation.pictures.items()]
    return [*(drawing for _, drawing in found), *pictures, *evaluation.figures]


def _lines(results: pd.DataFrame, metric: str) -> list[tuple[str | None, set[str]]]:
    """Each question with a metric, and its lines; no question and an empty set where the metric is empty."""
    if not metric:
        return [(None, set())]
    rows = by_question(results[results["metric"] == metric])
    return [(next(iter(own["question"].dropna()), None), set(own["attack"])) for _, own in rows]


def roc_table(evaluation: Evaluation) -> pd.DataFrame:
    """Points of the mean ROC curve of each label, with its number of clients."""
    parts = [
        pd.DataFrame({"label": label, "clients": count, "fpr": ROC_GRID.tolist(), "tpr": (rates / count).tolist()})
        for label, (rates, count) in evaluation.roc.items()
        if count
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def reliability_table(evaluation: Evaluation) -> pd.DataFrame:
    """Bins of each attack with priors, with its label."""
    parts = [table.assign(label=label) for label, table in evaluation.details.items() if PROBABILITY in table]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


FIGURES: list[FigureKind] = [
    FigureKind(table="results", axis=True, draw=below_bounds),
    FigureKind(table="results", axis=True, draw=by_setting),
    FigureKind(table="results", axis=False, draw=by_attack),
    FigureKind(table="profiles", draw=compositions),
    FigureKind(table="roc", draw=roc),
    FigureKind(table="reliability", draw=reliability),
    FigureKind(table="scores", draw=distribution),
    FigureKind(table="results", metric="times-chance", columns=MITIGATIONS, draw=mitigations),
    FigureKind(table="results", metric="auc", columns=(DEFENCE,), draw=privacy_and_utility),
    FigureKind(table="results", columns=(DEFENCE,), draw=signal_kept),
    FigureKind(table="results", metric="auc", columns=(MANIPULATION,), draw=detectability),
    FigureKind(table="results", metric="recovered", draw=against_rank),
]
"""Figures of every report, in order."""
