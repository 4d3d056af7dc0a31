"""Figures of every report, each with the data that it requires.

Figures are drawn for the metrics that judge attacks and for the first two metrics of a run, so a new metric needs no
code. A new kind of figure is a function and an entry of `FIGURES`.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from fedleak.core.metric_table import metric as metric_of
from fedleak.core.roc_grid import false_positive_rates
from fedleak.evaluation.answers import leading, recorded_answers
from fedleak.evaluation.captioned_figure import CaptionedFigure
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.persons import client_labels, over_clients
from fedleak.evaluation.result_names import CLIENTS, DATA, PROBABILITY
from fedleak.evaluation.scores import AttackInfo
from fedleak.reports.figures.below_bounds import below_bounds
from fedleak.reports.figures.by_attack import by_attack
from fedleak.reports.figures.by_setting import by_setting
from fedleak.reports.figures.compositions import compositions, mean_compositions
from fedleak.reports.figures.curves import reliability
from fedleak.reports.figures.curves import roc as roc_curves
from fedleak.reports.figures.figure_data import DrawnFigure, FigureData
from fedleak.reports.figures.images import reconstructions
from fedleak.reports.figures.line_styles import LineStyle, line_styles
from fedleak.reports.figures.trade_offs import (
    DEFENCE,
    MANIPULATION,
    MITIGATIONS,
    against_rank,
    detectability,
    mitigations,
    privacy_and_utility,
    signal_kept,
)
from fedleak.reports.sections import by_question, question_of
from fedleak.reports.tables import axis


@dataclass(frozen=True, kw_only=True)
class FigureKind:
    """Kind of figure and its requirements.

    Attributes:
        table: ``results``; ``scores``, one row per victim; ``roc``, with ``label``, its ``attack`` and ``setting``,
            ``fpr`` and ``tpr``; ``reliability``, with the same of its label and the bins of an attack with priors; or
            ``profiles``, see `fedleak.evaluation.evaluation.Evaluation`.
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
        if rows.empty or not set(self.columns) <= set(rows.columns):
            return False
        return self.axis is None or self.axis == (axis(rows) is not None)


def report_figures(
    evaluation: Evaluation, results: pd.DataFrame, metrics: Sequence[str], *, persons: bool = False
) -> list[CaptionedFigure]:
    """All figures for which a run has the data: by question in the page's order, at the end those of steps.

    Only with `persons` do they show single clients, see `fedleak.evaluation.persons.over_clients`.
    """
    if not persons:
        evaluation = over_clients(evaluation)
    profiles, clients = profiles_of(evaluation)
    tables = {
        "results": results,
        "profiles": profiles,
        "roc": roc_table(evaluation),
        "reliability": reliability_table(evaluation),
    }
    tables |= {name: _with_parts(table, evaluation) for name, table in tables.items() if "label" in table}
    judged = [name for name in metrics if metric_of(name).judged]
    shown_metrics = dict.fromkeys([*metrics[:2], *judged])
    styles = line_styles(results)
    drawings: list[tuple[str, CaptionedFigure]] = []
    for figure_kind in FIGURES:
        table = tables[figure_kind.table]
        names: Iterable[str] = [""]
        if "metric" in table:
            names = [figure_kind.metric] if figure_kind.metric else shown_metrics
        for name in names:
            drawings += _drawn(
                figure_kind,
                table,
                name,
                results=results,
                scores=evaluation.scores,
                styles=styles,
                clients=clients if persons else {},
            )
    for label, images in evaluation.pictures.items():
        question = evaluation.lines.get(label, AttackInfo()).question
        drawings.append(("", dataclasses.replace(reconstructions(label, images), question=question)))
    answers = leading(recorded_answers(results[results["metric"].isin(metrics)]))
    answered = [(answer.question, str(answer.setting.get("data", ""))) for answer in answers]
    # A drawing stands where its question and data are answered, one of all data at the first answer of its question.
    positions: dict[tuple[str | None, str], int] = {}
    for position, question_and_data in enumerate(answered):
        positions.setdefault(question_and_data, position)
    for position, (answered_question, _) in enumerate(answered):
        positions.setdefault((answered_question, ""), position)
    drawings.sort(key=lambda drawing: positions.get((drawing[1].question, drawing[0]), len(answered)))
    return [*(drawing for _, drawing in drawings), *evaluation.figures]


def _drawn(
    figure_kind: FigureKind,
    table: pd.DataFrame,
    name: str,
    *,
    results: pd.DataFrame,
    scores: pd.DataFrame,
    styles: Mapping[str, LineStyle],
    clients: Mapping[int, str],
) -> Iterator[tuple[str, DrawnFigure]]:
    """Drawings of one figure and metric for each data set and question, with the name of the data set.

    Args:
        figure_kind: what is drawn.
        table: its table.
        name: metric, empty where the table has none.
        results: results of the run.
        scores: scores of its clients.
        styles: styles of the lines.
        clients: label of each client by its number.
    """
    rows = table
    if name:
        rows = rows[rows["metric"] == name]
        scores = scores[scores["metric"] == name]
    rows_by_data: Iterable[tuple[Any, pd.DataFrame]] = [("", rows)]
    if DATA in rows:
        rows_by_data = rows.groupby(DATA, sort=False)
    has_several_data_sets = DATA in results and results[DATA].nunique() > 1
    for data, rows_of_data in rows_by_data:
        results_of_data = results[results[DATA] == data] if data else results
        # Scores are drawn with the results of one metric and data set only.
        scores_of_data = scores[:0]
        if name and data and DATA in scores:
            scores_of_data = scores[scores[DATA] == data]
        suffix = f"-{data!s}" if data and has_several_data_sets else ""
        for question, attacks in _attacks_by_question(results_of_data, name):
            rows_of_question = rows_of_data
            if "attack" in rows_of_data:
                rows_of_question = rows_of_data[rows_of_data["attack"].isin(attacks)]
            if not figure_kind.fits(rows_of_question):
                continue
            figure_data = FigureData(
                rows=rows_of_question,
                metric=name,
                results=results_of_data,
                styles=styles,
                scores=scores_of_data,
                clients=clients,
            )
            for drawing in figure_kind.draw(figure_data):
                named = dataclasses.replace(drawing, name=f"{drawing.name}{suffix}", question=question)
                yield str(data), named


def profiles_of(evaluation: Evaluation) -> tuple[pd.DataFrame, dict[int, str]]:
    """Class shares with the ``role`` of the attack and, of single clients, the ``person``; each client's label."""
    scores = evaluation.scores
    profiles = evaluation.profiles
    if profiles.empty:
        return profiles, client_labels(scores["person"])
    profiles = profiles.assign(role=[evaluation.lines.get(name, AttackInfo()).role for name in profiles["attack"]])
    if "victim" not in profiles:  # means over clients
        return profiles, client_labels(scores["person"])
    # The person behind a victim is another one in each training; without a score, it is the victim's number.
    people = dict(zip(zip(scores["seed"], scores["victim"], strict=True), scores["person"], strict=True))
    victims = zip(profiles["seed"], profiles["victim"], strict=True)
    profiles = profiles.assign(person=[people.get((seed, victim), victim) for seed, victim in victims])
    return profiles, client_labels([*scores["person"], *profiles["person"]])


def _with_parts(table: pd.DataFrame, evaluation: Evaluation) -> pd.DataFrame:
    """A table with the attack and the setting of each label."""
    labels = [evaluation.label(printed) for printed in table["label"]]
    attacks = [label.attack for label in labels]
    settings = [label.setting for label in labels]
    return table.assign(attack=attacks, setting=settings)


def _attacks_by_question(results: pd.DataFrame, metric: str) -> list[tuple[str | None, set[str]]]:
    """Each question with a metric, or with any where it is empty, and its attacks, baselines and references."""
    if metric:
        results = results[results["metric"] == metric]
    return [(question_of(rows), set(rows["attack"])) for _, rows in by_question(results)]


def roc_table(evaluation: Evaluation) -> pd.DataFrame:
    """Points of the mean ROC curve of each label, with its number of clients."""
    curves = []
    for label, (rate_sums, count) in evaluation.roc.items():
        if count:
            points = {
                "label": label,
                "clients": count,
                "fpr": false_positive_rates().tolist(),
                "tpr": (rate_sums / count).tolist(),
            }
            curves.append(pd.DataFrame(points))
    if not curves:
        return pd.DataFrame()
    return pd.concat(curves, ignore_index=True)


def reliability_table(evaluation: Evaluation) -> pd.DataFrame:
    """Bins of each attack with priors, with its label."""
    tables = [table.assign(label=label) for label, table in evaluation.details.items() if PROBABILITY in table]
    if not tables:
        return pd.DataFrame()
    return pd.concat(tables, ignore_index=True)


FIGURES: list[FigureKind] = [
    FigureKind(table="results", axis=True, draw=below_bounds),
    FigureKind(table="results", axis=True, draw=by_setting),
    FigureKind(table="results", axis=False, draw=by_attack),
    FigureKind(table="profiles", columns=("person",), draw=compositions),
    FigureKind(table="profiles", columns=(CLIENTS,), draw=mean_compositions),
    FigureKind(table="roc", draw=roc_curves),
    FigureKind(table="reliability", draw=reliability),
    FigureKind(table="results", metric="times-chance", columns=MITIGATIONS, draw=mitigations),
    FigureKind(table="results", metric="auc", columns=(DEFENCE,), draw=privacy_and_utility),
    FigureKind(table="results", columns=(DEFENCE,), draw=signal_kept),
    FigureKind(table="results", metric="auc", columns=(MANIPULATION,), draw=detectability),
    FigureKind(table="results", metric="recovered", draw=against_rank),
]
"""Figures of every report, in order."""
