"""Results of an experiment: what results.json holds, what evaluation.json holds of it, and what was published."""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import pandas as pd
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
)

from fedleak.core.errors import InputError, require
from fedleak.core.io.files import write_whole
from fedleak.evaluation.attack_descriptions import know_metrics
from fedleak.evaluation.reasons import Reason, reason_of_sentence
from fedleak.evaluation.result_names import DIFFERENCE, LUCK, RESULT
from fedleak.evaluation.run_rows import STRICT, DifferenceRow, ResultRow, Value, table_of_rows
from fedleak.evaluation.scores import records

RESULTS = "results.json"
"""Name of the file of results in the folder of a run: it is written for programs of others, and never read again."""
FORMAT = 1
"""Version of the file's format."""
_LINE = (
    *("name", "variant", "with_prior", "role", "comparison", "family", "question"),
    *("sees", "knows", "active", "tells", "unbounded"),
)
_COLUMNS = (*RESULT, LUCK, *_LINE, "paper", "source")


class RecordedLine(BaseModel):
    """Place in a recording: the line of one of its files that names a round, and the shards of that round."""

    model_config = STRICT
    round: int | None
    file: str
    line: Annotated[int, Field(ge=1)]
    shards: list[str]


class Recorded(BaseModel):
    """Recording that was attacked: its folder, its hash, and a place for each verdict of the gate, in its order."""

    model_config = STRICT
    folder: str
    sha256: str
    places: list[RecordedLine]


def _fingerprint(data: dict[str, str]) -> dict[str, str]:
    if not {"name", "sha256"} <= data.keys():
        raise ValueError("name or sha256 is missing")
    return data


_TEXTS = ("metric", "message")
_OUTCOMES = ("ok", "failed", "undecided", "unchecked")
_MAY_LACK: Mapping[str, type | tuple[type, ...]] = {
    "attack": str,
    "value": (int, float),
    "low": (int, float),
    "high": (int, float),
    "n": int,
    "about": str,
    "setting": dict,
    "round": int,
}
"""Kinds of the fields of a verdict that may be null, or absent as in runs of earlier versions."""


def _verdicts(gate: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Verdicts whose fields are those of `fedleak.evaluation.gate.Verdict`, because every report shows them."""
    for verdict in gate:
        limit = verdict.get("limit")
        is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
        has_texts = all(isinstance(verdict.get(name), str) for name in _TEXTS)
        has_kinds = True
        for name, kind in _MAY_LACK.items():
            if verdict.get(name) is not None and not isinstance(verdict[name], kind):
                has_kinds = False
        if not (is_number and has_texts and has_kinds and verdict.get("verdict") in _OUTCOMES):
            raise ValueError(f"a verdict with other fields: {str(verdict)[:100]}")
        float(limit or 0)  # an integer may be too large
    return gate


def _reasons_of(sentences: dict[str, str]) -> dict[str, Reason]:
    return {name: reason_of_sentence(sentence) for name, sentence in sentences.items()}


def _sentences_of(reasons: Mapping[str, Reason]) -> dict[str, str]:
    return {name: reason.sentence for name, reason in reasons.items()}


if TYPE_CHECKING:
    _Reasons: TypeAlias = dict[str, Reason]
    _Results: TypeAlias = pd.DataFrame
    _Differences: TypeAlias = pd.DataFrame
else:
    # The file has the sentences; who needs the fields, reads evaluation.json.
    _Reasons = Annotated[dict[str, str], AfterValidator(_reasons_of), PlainSerializer(_sentences_of)]
    _Results = Annotated[
        list[ResultRow],
        AfterValidator(functools.partial(table_of_rows, _COLUMNS)),
        PlainSerializer(lambda table: [ResultRow.of(row) for row in records(table)]),
    ]
    _Differences = Annotated[
        list[DifferenceRow],
        AfterValidator(functools.partial(table_of_rows, DIFFERENCE)),
        PlainSerializer(lambda table: [DifferenceRow.of(row) for row in records(table)]),
    ]


@dataclass(frozen=True)
class Run:
    """Results of one experiment: numbers over clients, and how they came about.

    Attributes:
        experiment: name.
        command: command line.
        seed: first seed.
        commit: commit of the code.
        versions: versions of the packages.
        data: name and hash of the data.
        hardware: hardware.
        seconds: wall time.
        results: a row per line, setting and metric, see `fedleak.evaluation.summary.summarise`, with the papers' values
            in ``paper`` and ``source``.
        answers: a row per question, data set and run, see `fedleak.evaluation.answers.plain`; empty in files of earlier
            versions.
        not_run: reason by attack that could not run.
        causes: likely causes of failed attacks, see `fedleak.evaluation.causes.Cause`.
        differences: paired differences, see `fedleak.evaluation.summary.paired_differences`.
        gate: verdict of each limit, see `fedleak.evaluation.gate.Verdict`.
        read_back: keys of a table's cells that an earlier run had finished.
        details: rows of attacks' own tables by label, see `fedleak.core.estimates.Scores.details`.
        learner_check: comparison of the learner's updates with the recorded ones, see
            `fedleak.evaluation.learner_match`.
        advice: which of the defences tried on the recording keep within the limits, see `fedleak.evaluation.advice`.
        defences: by defence that was tried on the recording, the outcome of each limit by its name.
        changes: what changed from other runs, see `fedleak.reports.change_tables.stored_changes`.
        system: what was recorded, for the first lines of a page, see `fedleak.reports.system`.
        plan: what the audit did, see `fedleak.evaluation.audit_plan.AuditPlan.described`; empty for a table.
        unrelated: reason by attack on a question that does not fit the recording.
        learner_wrong: whether that comparison found another learner.
        false_declarations: a sentence on each declaration of the clients that their updates contradict.
        recording: which recording was attacked, see `fedleak.reports.recorded_places`; None for several.
        format: version of the file.
    """

    __pydantic_config__ = STRICT

    experiment: str
    command: str
    seed: int
    commit: str | None
    versions: dict[str, str]
    data: Annotated[dict[str, str], AfterValidator(_fingerprint)]
    hardware: str
    seconds: float
    results: _Results
    not_run: _Reasons = field(default_factory=dict)
    causes: list[dict[str, Any]] = field(default_factory=list)
    differences: _Differences = field(default_factory=lambda: pd.DataFrame(columns=DIFFERENCE))
    gate: Annotated[list[dict[str, Any]], AfterValidator(_verdicts)] = field(default_factory=list)
    read_back: list[str] = field(default_factory=list)
    details: dict[str, list[dict[str, Value]]] = field(default_factory=dict)
    learner_check: str = ""
    advice: str = ""
    defences: dict[str, dict[str, str]] = field(default_factory=dict)
    changes: list[dict[str, Any]] = field(default_factory=list)
    system: dict[str, str] = field(default_factory=dict)
    plan: dict[str, str] = field(default_factory=dict)
    unrelated: _Reasons = field(default_factory=dict)
    learner_wrong: bool = False
    false_declarations: list[str] = field(default_factory=list)
    recording: Recorded | None = None
    answers: list[dict[str, Any]] = field(default_factory=list)
    format: Literal[1] = 1

    def write(self, directory: Path) -> Path:
        """Writes results.json, with null for NaN."""
        path = directory / RESULTS
        write_whole(path, self.json())
        return path

    def plain(self) -> dict[str, Any]:
        """Content of results.json as plain values."""
        content: dict[str, Any] = json.loads(self.json())
        return content

    def json(self) -> bytes:
        """Content of results.json, with null for NaN."""
        optional = {
            "details": self.details,
            "learner_check": self.learner_check,
            "answers": self.answers,
            "advice": self.advice,
            "defences": self.defences,
            "changes": self.changes,
            "system": self.system,
            "plan": self.plan,
            "unrelated": self.unrelated,
            "learner_wrong": self.learner_wrong,
            "false_declarations": self.false_declarations,
            "recording": self.recording,
        }
        empty = {name for name, value in optional.items() if not value}
        return TypeAdapter(Run).dump_json(self, indent=2, exclude=empty)

    @classmethod
    def of_json(cls, content: bytes) -> "Run":
        """The run of the content of a results.json.

        Raises:
            pydantic.ValidationError: the content is another.
            OverflowError: a number is too large.
        """
        return TypeAdapter(cls).validate_json(content)


def read_published(path: Path) -> Run:
    """Reads a results.json without an evaluation: a published one, or one of a run of an earlier version.

    Of a run that this version wrote, `fedleak.evaluation.stored_run.read_run` reads evaluation.json.

    Raises:
        InputError: the file is missing, damaged or in another format.
    """
    know_metrics()  # those of its attacks, which pages explain
    way_out = "Give a folder written by fedleak, e.g. runs/NAME."
    require(path.is_file(), f"a {RESULTS} of format {FORMAT}", f"none in {path.parent}", way_out)
    try:
        return Run.of_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field_path = ".".join(map(str, first["loc"]))
        defect = f"{field_path or 'the file'}: {first['msg']}, {first['input']!r:.60} in {path}"
    except (OSError, OverflowError) as error:
        defect = f"{error!s:.200} in {path}"
    raise InputError(expected=f"a {RESULTS} of format {FORMAT}", found=defect, way_out=way_out)
