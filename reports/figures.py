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
from evaluation.drawing import Drawing
from evaluation.runner import Evaluation
from evaluation.scores import Line
from protocol.metric_table import metric as metric_of
from reports.against import against
from reports.below_bounds import below_bounds
from reports.by_attack import by_attack
from reports.compositions import compositions
from reports.curves import distribution, roc
from reports.drawing import Material
from reports.headline import headline
from reports.looks import looks
from reports.questions import by_question
from reports.tables import DATA, axis
from reports.trade_offs import (
    DEFENCE,
    MANIPULATION,
    MITIGATIONS,
    against_rank,
    detectability,
    mitigations,
    privacy_and_utility,
)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Kind of figure and its requirements.

    Attributes:
        table: ``results``; ``scores``, one row per victim; ``roc``, with ``label``, ``fpr`` and ``tpr``; or
            ``profiles``, see `evaluation.runner.Evaluation`.
        draw: function that makes the drawings.
        metric: the only metric to draw it for, None for all shown.
        columns: columns that the rows must have.
        axis: whether it requires a varying numeric setting, or none; None for either.
    """

    table: Literal["results", "scores", "roc", "profiles"]
    draw: Callable[[Material], list[Drawing]]
    metric: str | None = None
    columns: tuple[str, ...] = ()
    axis: bool | None = None

    def fits(self, rows: pd.DataFrame) -> bool:
        """Whether the rows meet the requirements."""
        given = set(self.columns) <= set(rows.columns)
        return given and len(rows) > 0 and (self.axis is None or self.axis == (axis(rows) is not None))


def drawings(evaluation: Evaluation, results: pd.DataFrame, metrics: Sequence[str]) -> list[Drawing]:
    """All figures for which a run has the data; the headline's first.

    Args:
        evaluation: scores.
        results: all results, with derived ones.
        metrics: metrics that the run reports.
    """
    profiles = evaluation.profiles
    if len(profiles):
        profiles = profiles.assign(role=[evaluation.lines.get(name, Line()).role for name in profiles["attack"]])
    tables = {"results": results, "scores": evaluation.scores, "roc": _roc_table(evaluation), "profiles": profiles}
    shown = dict.fromkeys([*metrics[:2], *(name for name in metrics if metric_of(name).judged)])
    page, first = looks(results), headline(results[results["metric"].isin(metrics)])
    found: list[tuple[bool, Drawing]] = []
    for figure in FIGURES:
        table = tables[figure.table]
        for name in ([figure.metric] if figure.metric else shown) if "metric" in table else [""]:
            rows = table[table["metric"] == name] if name else table
            for data, part in rows.groupby(DATA, sort=False) if DATA in rows else [("", rows)]:
                of_data = results[results[DATA] == data] if data else results
                for question, lines in _lines(of_data, name):
                    own = part[part["attack"].isin(lines)] if lines else part
                    drawn = figure.draw(Material(own, name, of_data, page)) if figure.fits(own) else []
                    about = (question, name, data)
                    main = figure.table == "results" and about == (first.question, first.metric, first.data or "")
                    for drawing in drawn:
                        several = f"-{data!s}" if data and results[DATA].nunique() > 1 else ""
                        found.append((main, dataclasses.replace(drawing, name=f"{drawing.name}{several}")))
    found.sort(key=lambda one: not one[0])
    return [drawing for _, drawing in found]


def _lines(results: pd.DataFrame, metric: str) -> list[tuple[str | None, set[str]]]:
    """Each question with a metric, and its lines; no question and an empty set where the metric is empty."""
    if not metric:
        return [(None, set())]
    rows = by_question(results[results["metric"] == metric])
    return [(next(iter(own["question"].dropna()), None), set(own["attack"])) for _, own in rows]


def _roc_table(evaluation: Evaluation) -> pd.DataFrame:
    """Mean curve of each label."""
    curves = {label: (rates / count).tolist() for label, (rates, count) in evaluation.roc.items() if count}
    parts = [pd.DataFrame({"label": name, "fpr": ROC_GRID.tolist(), "tpr": rates}) for name, rates in curves.items()]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


FIGURES: list[Figure] = [
    Figure(table="results", axis=True, draw=below_bounds),
    Figure(table="results", axis=True, draw=against),
    Figure(table="results", axis=False, draw=by_attack),
    Figure(table="profiles", draw=compositions),
    Figure(table="roc", draw=roc),
    Figure(table="scores", draw=distribution),
    Figure(table="results", metric="times-chance", columns=MITIGATIONS, draw=mitigations),
    Figure(table="results", metric="auc", columns=(DEFENCE,), draw=privacy_and_utility),
    Figure(table="results", metric="auc", columns=(MANIPULATION,), draw=detectability),
    Figure(table="results", metric="recovered", draw=against_rank),
]
"""Figures of every report, in order."""
