"""Pictures next to the list of questions: of class shares, of a client's records, or of an attack's values."""

from collections import defaultdict
from collections.abc import Sequence

import pandas as pd

from fedleak.evaluation.answers import Answer
from fedleak.evaluation.as_recorded import COSINE
from fedleak.evaluation.captioned_figure import CaptionedFigure
from fedleak.evaluation.comparisons import Row
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.persons import over_clients
from fedleak.evaluation.result_names import CLIENTS
from fedleak.evaluation.scores import setting_columns
from fedleak.reports.figures.by_attack import by_attack
from fedleak.reports.figures.compositions import mean_shares, one_client
from fedleak.reports.figures.figure_data import FigureData
from fedleak.reports.figures.images import reconstructions
from fedleak.reports.figures.line_styles import line_styles
from fedleak.reports.figures.report_figures import profiles_of
from fedleak.reports.figures.trade_offs import signal_kept
from fedleak.reports.questions import Question

_MOST = 2


def first_pictures(
    evaluation: Evaluation, results: pd.DataFrame, asked: Sequence[Question], *, persons: bool = False
) -> list[CaptionedFigure]:
    """A picture for each data set, at most two: class shares or records of the first question that has them.

    Without, it shows the values of the best attack on the first question. Only leaks count if there is one. Only with
    `persons` does a picture show single clients, see `fedleak.evaluation.persons.over_clients`.
    """
    frontier = _frontier(results, asked)
    if frontier:
        return list(frontier)
    evaluation = evaluation if persons else over_clients(evaluation)
    measured = [one.answer for one in asked if one.answer.row is not None]
    answers = [answer for answer in measured if answer.status == "leak"] or measured
    by_data: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        by_data[repr(answer.setting.get("data"))].append(answer)
    figures: list[CaptionedFigure] = []
    for of_data in list(by_data.values())[:_MOST]:
        drawn = [content for answer in of_data if (content := _content(evaluation, results, answer)) is not None]
        figures += drawn[:1] or _by_client(evaluation, results, of_data[0], persons=persons)
    return figures


def _frontier(results: pd.DataFrame, asked: Sequence[Question]) -> Sequence[CaptionedFigure]:
    """Of a what-if, what each defence leaves of the mean update against the leak of the first question."""
    if not (results["metric"] == COSINE).any() or not asked or asked[0].answer.row is None:
        return []
    answer = asked[0].answer
    rows = results[(results["question"] == answer.question) & (results["metric"] == answer.metric)]
    return signal_kept(FigureData(rows, answer.metric, results, line_styles(results)))[:1]


def _content(evaluation: Evaluation, results: pd.DataFrame, answer: Answer) -> CaptionedFigure | None:
    """Class shares, or records of a client, and what is inferred of them; None for a question without."""
    row = answer.row
    assert row is not None  # it was measured
    profiles, clients = profiles_of(evaluation)
    styles = line_styles(results)
    same = {label for label, line in evaluation.lines.items() if line.question == row["question"]}
    if len(profiles):
        own = _in_setting(profiles[profiles["attack"].isin(same & styles.keys())], row)
        if len(own) and CLIENTS in own:
            return mean_shares(FigureData(own, "", results, styles), row["attack"])
        if len(own):
            return one_client(FigureData(own, "", results, styles, clients=clients), row["attack"])
    images = evaluation.pictures.get(row["attack"])
    return None if images is None else reconstructions(row["attack"], images)


def _by_client(
    evaluation: Evaluation, results: pd.DataFrame, answer: Answer, *, persons: bool
) -> Sequence[CaptionedFigure]:
    """Values of an attack and of the best baseline, of every client or with a band over clients."""
    row, scores = answer.row, evaluation.scores
    if scores.empty or row is None:
        return []
    baseline = None if answer.baseline is None else answer.baseline.row
    kept = pd.DataFrame([row] if baseline is None else [row, baseline])
    own = scores[(scores["metric"] == row["metric"]) & scores["attack"].isin(kept["attack"])]
    clients = profiles_of(evaluation)[1] if persons else {}
    drawn = FigureData(kept, row["metric"], results, line_styles(results), _in_setting(own, row), clients)
    return by_attack(drawn, width=4.6)


def _in_setting(rows: pd.DataFrame, row: Row) -> pd.DataFrame:
    """Those of the rows that have the setting of a result."""
    for name in set(setting_columns(rows)) & row.keys():
        rows = rows[rows[name].map(repr) == repr(row[name])]
    return rows
