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
"""Largest number of pictures, which stand side by side."""


def first_pictures(
    evaluation: Evaluation, results: pd.DataFrame, questions: Sequence[Question], *, persons: bool = False
) -> list[CaptionedFigure]:
    """A picture for each data set, at most two: class shares or records of the first question that has them.

    Without, it shows the values of the best attack on the first question. Only leaks count if there is one. Only with
    `persons` does a picture show single clients, see `fedleak.evaluation.persons.over_clients`.
    """
    frontier = _frontier(results, questions)
    if frontier:
        return list(frontier)
    if not persons:
        evaluation = over_clients(evaluation)
    measured = [question.answer for question in questions if question.answer.row is not None]
    answers = [answer for answer in measured if answer.status == "leak"] or measured
    by_data: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        by_data[repr(answer.setting.get("data"))].append(answer)
    figures: list[CaptionedFigure] = []
    for answers_on_data in list(by_data.values())[:_MOST]:
        figures += _picture(evaluation, results, answers_on_data, persons=persons)
    return figures


def _picture(
    evaluation: Evaluation, results: pd.DataFrame, answers: Sequence[Answer], *, persons: bool
) -> Sequence[CaptionedFigure]:
    """The first answer's content that can be drawn, else values of the first answer's attack."""
    for answer in answers:
        content = _content(evaluation, results, answer)
        if content is not None:
            return [content]
    return _by_client(evaluation, results, answers[0], persons=persons)


def _frontier(results: pd.DataFrame, questions: Sequence[Question]) -> Sequence[CaptionedFigure]:
    """Of a what-if, what each defence leaves of the mean update against the leak of the first question."""
    if not (results["metric"] == COSINE).any() or not questions or questions[0].answer.row is None:
        return []
    answer = questions[0].answer
    rows = results[(results["question"] == answer.question) & (results["metric"] == answer.metric)]
    return signal_kept(FigureData(rows, answer.metric, results, line_styles(results)))[:1]


def _content(evaluation: Evaluation, results: pd.DataFrame, answer: Answer) -> CaptionedFigure | None:
    """Class shares, or records of a client, and what is inferred of them; None for a question without."""
    row = answer.row
    assert row is not None  # it was measured
    profiles, clients = profiles_of(evaluation)
    styles = line_styles(results)
    same_question = {label for label, info in evaluation.lines.items() if info.question == row["question"]}
    if len(profiles):
        shares = _in_setting(profiles[profiles["attack"].isin(same_question & styles.keys())], row)
        if len(shares) and CLIENTS in shares:
            return mean_shares(FigureData(shares, "", results, styles), row["attack"])
        if len(shares):
            return one_client(FigureData(shares, "", results, styles, clients=clients), row["attack"])
    images = evaluation.pictures.get(row["attack"])
    if images is None:
        return None
    return reconstructions(row["attack"], images)


def _by_client(
    evaluation: Evaluation, results: pd.DataFrame, answer: Answer, *, persons: bool
) -> Sequence[CaptionedFigure]:
    """Values of an attack and of the best baseline, of every client or with a band over clients."""
    row = answer.row
    scores = evaluation.scores
    if scores.empty or row is None:
        return []
    drawn_rows = [row]
    if answer.baseline is not None and answer.baseline.row is not None:
        drawn_rows.append(answer.baseline.row)
    rows = pd.DataFrame(drawn_rows)
    client_scores = scores[(scores["metric"] == row["metric"]) & scores["attack"].isin(rows["attack"])]
    clients: dict[int, str] = {}
    if persons:
        _, clients = profiles_of(evaluation)
    data = FigureData(
        rows,
        row["metric"],
        results,
        line_styles(results),
        scores=_in_setting(client_scores, row),
        clients=clients,
    )
    return by_attack(data, width=4.6)


def _in_setting(rows: pd.DataFrame, row: Row) -> pd.DataFrame:
    """Those of the rows that have the setting of a result."""
    for name in set(setting_columns(rows)) & row.keys():
        rows = rows[rows[name].map(repr) == repr(row[name])]
    return rows
