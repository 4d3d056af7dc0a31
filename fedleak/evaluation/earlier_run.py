"""Runs of earlier versions: results.json, read back, next to an evaluation.json of format 2, or alone.

fedleak 0.2 wrote the results of a run into results.json only, so both files are read. This module can go with the first
version that may drop files of 0.2, see CHANGELOG.md; tables that are published have results.json alone, and are read by
`fedleak.evaluation.run.read_published`.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from fedleak.core.errors import InputError
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.labels import Label, label_of_text
from fedleak.evaluation.reasons import Reason, reason_of_sentence
from fedleak.evaluation.result_names import MESSAGES, UPDATES
from fedleak.evaluation.run import RESULTS, Run, read_published
from fedleak.evaluation.scores import AttackInfo, records
from fedleak.evaluation.stored import EVALUATION, evaluation_of, read_parts
from fedleak.evaluation.stored_kinds import EvaluationParts

_FORMAT = 2
"""Version of the files of fedleak 0.2."""


class _EarlierParts(EvaluationParts):
    """Entries of the evaluation.json of a run."""

    data: dict[str, str] = Field(default_factory=dict)
    unrelated: dict[str, Reason] = Field(default_factory=dict)
    not_under_defences: dict[str, Reason] = Field(default_factory=dict)
    labels: dict[str, Label] = Field(default_factory=dict)

    @field_validator("missing", mode="before")
    @classmethod
    def _with_fields(cls, sentences: Any) -> Any:
        """Reasons of their sentences, which were all that was stored."""
        if not isinstance(sentences, dict) or not all(isinstance(text, str) for text in sentences.values()):
            raise ValueError("reasons that are no texts")
        return {name: reason_of_sentence(sentence) for name, sentence in sentences.items()}

    @field_validator("lines", mode="before")
    @classmethod
    def _with_reasons(cls, infos: Any) -> Any:
        """Descriptions of attacks, whose reasons for an unknown bound were one text."""
        """Descriptions of attacks, whose reasons for an unknown bound were one text."""
        if not isinstance(infos, dict) or not all(isinstance(fields, dict) for fields in infos.values()):
            raise ValueError("descriptions of another kind")
        return {label: _line_of(fields) for label, fields in infos.items()}


def _line_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the description of an attack, with the reasons for an unknown bound as a list."""
    unbounded = fields.get("unbounded", "")
    if not isinstance(unbounded, str):
        raise ValueError("a reason that is no text")
    return {**fields, "unbounded": (unbounded,) if unbounded else ()}


def earlier_run(directory: Path) -> tuple[Run, Evaluation, Mapping[str, str]]:
    """Results of the run in a folder, its evaluation, and the name and hash of its data.

    Without evaluation.json, the evaluation has descriptions of the attacks alone, so a page of it lacks figures.

    Raises:
        InputError: there is no run.
        DamagedError: its evaluation is damaged, or another version's.
    """
    has_evaluation = (directory / EVALUATION).is_file()
    if not has_evaluation and not (directory / RESULTS).is_file():
        raise InputError(
            expected=f"a folder with {EVALUATION}, or with the {RESULTS} of an earlier version",
            found=f"none of both in {directory}",
            way_out="Give a folder written by fedleak, e.g. runs/NAME.",
        )
    if has_evaluation:
        parts = read_parts(directory / EVALUATION, _EarlierParts, version=_FORMAT)
        evaluation = evaluation_of(parts)
        # Labels of curves and tables in one of several cells were stored as they are printed.
        attacks = [*evaluation.lines, UPDATES, MESSAGES]
        evaluation.labels = {}
        for printed in (*evaluation.roc, *evaluation.details):
            label = label_of_text(printed, attacks)
            if label.where:
                evaluation.labels[printed] = label
        return read_published(directory / RESULTS), evaluation, parts.data
    run = read_published(directory / RESULTS)
    names = [field.name for field in dataclasses.fields(AttackInfo)]
    infos = {}
    for row in records(run.results.drop_duplicates("attack")):
        fields = {name: row[name] for name in names if name in row}
        infos[str(row["attack"])] = AttackInfo(**_line_of(fields))
    return run, Evaluation(lines=infos), run.data
