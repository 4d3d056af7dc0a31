"""Evaluation of attacks: their scores, with the data that reports need to describe them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedleak.core.reconstruction import Reconstruction
from fedleak.evaluation.captioned_figure import CaptionedFigure
from fedleak.evaluation.labels import Label
from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.scores import AttackInfo, concat, stacked

if TYPE_CHECKING:
    from fedleak.core.estimates import Candidates
    from fedleak.evaluation.runner import AttackAnswers


@dataclass
class Evaluation:
    """Scores of attacks, with the data that reports need to describe them.

    Attributes:
        scores: table of scores, see `fedleak.evaluation.scores.SCHEMA`.
        lines: description of each label.
        roc: by label, sum over the victims of the true-positive rates at `fedleak.core.roc_grid` ``(G,)``, and number
            of victims.
        missing: by the printed name of an attack that could not run, the reason.
        pictures: by label, images of the first clients next to their reconstructions.
        figures: figures that steps add to those of every report.
        profiles: one row per victim, round, attack and class: ``true``, ``inferred``, ``low`` and ``high`` share.
        candidates: by label, what was ranked, with clients as owners; of the first views, see
            `fedleak.evaluation.runner.MOST_CANDIDATES`.
        unrelated: by attack of a family in which none was scored, the reason; see
            `fedleak.evaluation.relevance.relevant`.
        not_under_defences: by attack that ran on the recording and was left out under defences, the reason.
        details: by label, the attack's own table, see `fedleak.core.estimates.Scores.details`.
        labels: by the printed label of a curve or of an attack's own table in one of several cells, its parts; the
            others are labels of attacks, see `label`.
        answers: by label, what the estimates of the first views say of the answers, see
            `fedleak.evaluation.runner.MOST_CANDIDATES`.
        mismatch: that the learner's updates differ from the recorded ones, see `fedleak.evaluation.learner_match`; else
            None.
        learner_check: outcome of this comparison, also if it found nothing or could not be made; empty for none.
        false_declarations: a sentence on each declaration of the clients that their updates contradict.
        tracebacks: by attack that ended in an exception, its traceback; `missing` has it too.
    """

    scores: pd.DataFrame = field(default_factory=lambda: concat([]))
    lines: dict[str, AttackInfo] = field(default_factory=dict)
    roc: dict[str, tuple[NDArray[np.float64], int]] = field(default_factory=dict)
    missing: dict[str, Reason] = field(default_factory=dict)
    pictures: dict[str, Reconstruction] = field(default_factory=dict)
    figures: list[CaptionedFigure] = field(default_factory=list)
    profiles: pd.DataFrame = field(default_factory=pd.DataFrame)
    candidates: dict[str, "Candidates"] = field(default_factory=dict)
    unrelated: dict[str, Reason] = field(default_factory=dict)
    not_under_defences: dict[str, Reason] = field(default_factory=dict)
    details: dict[str, pd.DataFrame] = field(default_factory=dict)
    labels: dict[str, Label] = field(default_factory=dict)
    answers: dict[str, list["AttackAnswers"]] = field(default_factory=dict)
    mismatch: str | None = None
    learner_check: str = ""
    false_declarations: list[str] = field(default_factory=list)
    tracebacks: dict[str, str] = field(default_factory=dict)

    def label(self, printed: str) -> Label:
        """The parts of the printed label of a curve or of an attack's own table."""
        return self.labels.get(printed, Label(printed))

    @property
    def not_run(self) -> dict[str, Reason]:
        """Reasons to be printed, by what did not run: those of `missing` and of `not_under_defences`."""
        under_defences = {f"{name} under defences": reason for name, reason in self.not_under_defences.items()}
        return {**self.missing, **under_defences}


def joined(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Concatenation of several evaluations."""
    result = Evaluation(scores=concat([evaluation.scores for evaluation in evaluations]))
    profiles = [evaluation.profiles for evaluation in evaluations if len(evaluation.profiles)]
    if profiles:
        result.profiles = pd.concat(profiles, ignore_index=True)
    for evaluation in evaluations:
        _add(result, evaluation)
    # What was ranked in all views together, in the order of the labels.
    for label in result.lines:
        parts = [evaluation.candidates[label] for evaluation in evaluations if label in evaluation.candidates]
        if parts:
            result.candidates[label] = parts[0].joined(parts)
    return result


def _add(result: Evaluation, evaluation: Evaluation) -> None:
    """Adds to an evaluation what another one has besides tables of scores and shares, and candidates."""
    for label, info in evaluation.lines.items():
        result.lines[label] = info.after(result.lines.get(label))
    result.missing |= evaluation.missing
    result.labels |= evaluation.labels
    # The first pictures of a label stay.
    result.pictures = evaluation.pictures | result.pictures
    result.figures += evaluation.figures
    for label, table in evaluation.details.items():
        earlier_tables = [result.details[label]] if label in result.details else []
        result.details[label] = stacked([*earlier_tables, table])
    for label, (rates, count) in evaluation.roc.items():
        if label in result.roc:
            earlier_rates, earlier_count = result.roc[label]
            rates, count = earlier_rates + rates, earlier_count + count
        result.roc[label] = rates, count
    for label, answers in evaluation.answers.items():
        result.answers[label] = [*result.answers.get(label, []), *answers]
    result.unrelated |= evaluation.unrelated
    result.not_under_defences |= evaluation.not_under_defences
    # One check of the learner counts for all.
    result.mismatch = result.mismatch or evaluation.mismatch
    result.learner_check = result.learner_check or evaluation.learner_check
    declarations = dict.fromkeys(result.false_declarations + evaluation.false_declarations)
    result.false_declarations = list(declarations)
    result.tracebacks |= evaluation.tracebacks
