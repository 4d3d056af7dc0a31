"""Results of an experiment: what results.json holds, what evaluation.json holds of it, and what was published."""

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import pandas as pd
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
    field_validator,
)

from fedleak.core.errors import InputError, require
from fedleak.core.io.files import write_whole
from fedleak.evaluation.attack_descriptions import know_metrics
from fedleak.evaluation.reasons import Reason, reason_of_sentence
from fedleak.evaluation.result_names import ATTACKS, DIFFERENCE, LUCK, RATIO, RESULT
from fedleak.evaluation.scores import SETTING, from_records, records, setting_of

RESULTS = "results.json"
"""Name of the file of results in the folder of a run: it is written for programs of others, and never read again."""
FORMAT = 1
_LINE = (
    *("name", "variant", "with_prior", "role", "comparison", "family", "question"),
    *("sees", "knows", "active", "tells", "unbounded"),
)
_COLUMNS = (*RESULT, LUCK, *_LINE, "paper", "source")
_STRICT = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)
"""Unknown keys, of another version, are dropped."""

Value = str | int | float | bool | None
Number = Annotated[float | None, AfterValidator(lambda value: math.nan if value is None else value)]
"""A number, null for NaN."""


class _Paper(BaseModel):
    model_config = _STRICT
    value: float
    source: str


class _Threat(BaseModel):
    model_config = _STRICT
    sees: str
    knows: str
    active: bool


class _Numbers(BaseModel):
    """Numbers of one attack, setting and metric."""

    model_config = _STRICT
    attack: str
    setting: dict[str, Value]
    metric: str
    mean: Number
    ci95: tuple[Number, Number]
    n: int
    seeds: int = 1

    @field_validator("setting")
    @classmethod
    def _no_number_too_large(cls, setting: dict[str, Value]) -> dict[str, Value]:
        for value in setting.values():
            float(0 if value is None or isinstance(value, str) else value)  # pandas cannot hold larger integers
        return setting

    @classmethod
    def fields_of(cls, row: Mapping[str, Any]) -> dict[str, Any]:
        """Fields with a column of the same name, None for NaN; the setting and the interval."""
        same = {name: row[name] if row[name] == row[name] else None for name in cls.model_fields if name in row}
        return {**same, "setting": setting_of(row), "ci95": (row["low"], row["high"])}

    def row(self) -> dict[str, Any]:
        """Row of a table of results, with setting columns."""
        low, high = self.ci95
        same = self.model_dump(exclude={"setting", "ci95"})
        return {**same, "low": low, "high": high, **{SETTING + key: value for key, value in self.setting.items()}}


class _Result(_Numbers):
    std: Number
    seconds_per_victim: Number
    paper: _Paper | None
    baseline: bool = False
    threat_model: _Threat | None = None
    name: str = ""
    variant: str | None = None
    with_prior: bool = False
    family: str | None = None
    role: str | None = None
    comparison: str = ""
    question: str | None = None
    tells: str = ""
    unbounded: str = ""
    luck: Number = math.nan

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "_Result":
        value, threat = row.get("paper"), {name: row[name] for name in ("sees", "knows", "active")}
        paper = None if value is None or value != value else _Paper.model_construct(value=value, source=row["source"])
        known = _Threat.model_construct(**threat) if row["sees"] or row["knows"] else None
        fields = {**cls.fields_of(row), "baseline": row["role"] not in ATTACKS, "paper": paper, "threat_model": known}
        return cls.model_construct(**fields)

    def row(self) -> dict[str, Any]:
        row = super().row()
        threat, paper, baseline = row.pop("threat_model"), row.pop("paper"), row.pop("baseline")
        row |= threat or {"sees": "", "knows": "", "active": False}
        row |= {"paper": paper["value"], "source": paper["source"]} if paper else {"paper": math.nan, "source": None}
        return {**row, "role": self.role or ("baseline" if baseline else "ours")}


class _Difference(_Numbers):
    against: str
    ratio: tuple[Number, Number, Number] = (math.nan, math.nan, math.nan)

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "_Difference":
        ratio = tuple(row.get(name, math.nan) for name in RATIO)
        return cls.model_construct(**{**cls.fields_of(row), "ratio": ratio})

    def row(self) -> dict[str, Any]:
        return {**super().row(), **dict(zip(RATIO, self.ratio, strict=True))}


class Place(BaseModel):
    """Place in a recording: the line of one of its files that names a round, and the shards of that round."""

    model_config = _STRICT
    round: int | None
    file: str
    line: Annotated[int, Field(ge=1)]
    shards: list[str]


class Recorded(BaseModel):
    """Recording that was attacked: its folder, its hash, and a place for each verdict of the gate, in its order."""

    model_config = _STRICT
    folder: str
    sha256: str
    places: list[Place]


def _table(columns: tuple[str, ...], entries: Sequence[_Numbers]) -> pd.DataFrame:
    rows = [entry.row() for entry in entries]
    settings = dict.fromkeys(name for row in rows for name in row if name.startswith(SETTING))
    return from_records(rows, [*columns, *settings]).astype({"n": "int64", "seeds": "int64"})


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
        numeric = isinstance(limit, int | float) and not isinstance(limit, bool)
        texts = all(isinstance(verdict.get(name), str) for name in _TEXTS)
        others = all(verdict.get(name) is None or isinstance(verdict[name], kind) for name, kind in _MAY_LACK.items())
        if not (numeric and texts and others and verdict.get("verdict") in _OUTCOMES):
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
        list[_Result],
        AfterValidator(functools.partial(_table, _COLUMNS)),
        PlainSerializer(lambda table: [_Result.of(row) for row in records(table)]),
    ]
    _Differences = Annotated[
        list[_Difference],
        AfterValidator(functools.partial(_table, DIFFERENCE)),
        PlainSerializer(lambda table: [_Difference.of(row) for row in records(table)]),
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

    __pydantic_config__ = _STRICT

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
        place = ".".join(map(str, first["loc"]))
        found = f"{place or 'the file'}: {first['msg']}, {first['input']!r:.60} in {path}"
    except (OSError, OverflowError) as error:
        found = f"{error!s:.200} in {path}"
    raise InputError(expected=f"a {RESULTS} of format {FORMAT}", found=found, way_out=way_out)
