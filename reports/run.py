"""Results of an experiment and their file, results.json."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from datamodules.io.files import write_whole
from evaluation.scores import SETTING, from_records, records, setting_of
from evaluation.summary import DIFFERENCE, RATIO, RESULT
from protocol.errors import InputError, require

FORMAT = 1
ATTACKS = ("ours", "published")
"""Roles of attacks; the other lines are comparisons."""
_LINE = ("role", "family", "question", "sees", "knows", "active", "tells")
_COLUMNS = (*RESULT, *_LINE, "paper", "source")


@dataclass(frozen=True)
class Run:
    """Results of one experiment.

    Attributes:
        experiment: name.
        command: command line.
        seed: first seed.
        commit: commit of the code.
        versions: versions of the packages.
        data: name and hash of the data.
        hardware: hardware.
        seconds: wall time.
        results: a row per line, setting and metric, see `evaluation.summary.summarise`, with the papers' values in
            ``paper`` and ``source``.
        not_run: reason by attack that could not run.
        causes: likely causes of failed attacks, see `evaluation.causes.Cause`.
        differences: paired differences, see `evaluation.summary.paired_differences`.
        gate: verdict of each limit, see `evaluation.gate.Verdict`.
        read_back: keys of a table's cells that an earlier run had finished.
        details: rows of attacks' own tables by label, see `attacks.estimates.Scores.details`.
        learner_check: comparison of the learner's updates with the recorded ones, see `evaluation.learner_match`.
    """

    experiment: str
    command: str
    seed: int
    commit: str | None
    versions: dict[str, str]
    data: dict[str, str]
    hardware: str
    seconds: float
    results: pd.DataFrame
    not_run: dict[str, str] = field(default_factory=dict)
    causes: list[dict[str, Any]] = field(default_factory=list)
    differences: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=DIFFERENCE))
    gate: list[dict[str, Any]] = field(default_factory=list)
    read_back: list[str] = field(default_factory=list)
    details: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    learner_check: str = ""

    def write(self, directory: Path) -> Path:
        """Writes results.json, with null for NaN."""
        path = directory / "results.json"
        content = {"format": FORMAT, **{one.name: getattr(self, one.name) for one in fields(self)}}
        content["results"] = [_as_result(row) for row in records(self.results)]
        content["differences"] = [_as_difference(row) for row in records(self.differences)]
        for name in ("details", "learner_check"):
            if not content[name]:
                del content[name]
        write_whole(path, json.dumps(_without_nan(content), indent=2, allow_nan=False).encode())
        return path

    @classmethod
    def read(cls, path: Path) -> "Run":
        """Reads results.json.

        Raises:
            InputError: the file is missing, damaged or in another format.
        """
        way_out = "Give a folder written by attack.py, e.g. runs/NAME."
        require(path.is_file(), f"a results.json of format {FORMAT}", f"none in {path.parent}", way_out)
        try:
            return cls(**_File.model_validate_json(path.read_bytes()).arguments())
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            found = f"{place or 'the file'}: {first['msg']}, {first['input']!r:.60} in {path}"
        except (OSError, OverflowError) as error:
            found = f"{error!s:.200} in {path}"
        raise InputError(expected=f"a results.json of format {FORMAT}", found=found, way_out=way_out)


def _as_result(row: Mapping[str, Any]) -> dict[str, Any]:
    paper = row.get("paper")
    known = bool(row["sees"] or row["knows"])
    numbers = ("metric", "mean", "std", "n", "seconds_per_victim", "seeds")
    return {
        **{"attack": row["attack"], "setting": setting_of(row), **{name: row[name] for name in numbers}},
        **{"ci95": [row["low"], row["high"]], "baseline": row["role"] not in ATTACKS},
        "paper": None if paper is None or paper != paper else {"value": paper, "source": row["source"]},
        "threat_model": {name: row[name] for name in ("sees", "knows", "active")} if known else None,
        **{name: row[name] for name in ("family", "role", "question", "tells")},
    }


def _as_difference(row: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {name: row[name] for name in ("metric", "mean", "n", "seeds")}
    named = {"attack": row["attack"], "against": row["against"], "setting": setting_of(row)}
    ratio = [row.get(name, math.nan) for name in RATIO]
    return {**named, **numbers, "ci95": [row["low"], row["high"]], "ratio": ratio}


Value = str | int | float | bool | None
Number = Annotated[float | None, AfterValidator(lambda value: math.nan if value is None else value)]
"""A number, null for NaN."""


class _Entry(BaseModel):
    """Object of results.json; unknown keys, of another version, are dropped."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class _Paper(_Entry):
    value: float
    source: str


class _Threat(_Entry):
    sees: str
    knows: str
    active: bool


class _Numbers(_Entry):
    """Numbers of one attack, setting and metric."""

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

    def row(self) -> dict[str, Any]:
        """Row of a table of results, with setting columns."""
        low, high = self.ci95
        kept = {name: getattr(self, name) for name in ("attack", "metric", "mean", "n", "seeds")}
        return {**kept, "low": low, "high": high, **{SETTING + key: value for key, value in self.setting.items()}}


class _Result(_Numbers):
    std: Number
    seconds_per_victim: Number
    paper: _Paper | None
    baseline: bool = False
    threat_model: _Threat | None = None
    family: str | None = None
    role: str | None = None
    question: str | None = None
    tells: str = ""

    def row(self) -> dict[str, Any]:
        threat = self.threat_model or _Threat(sees="", knows="", active=False)
        paper: tuple[float, str | None] = (math.nan, None)
        if self.paper is not None:
            paper = self.paper.value, self.paper.source
        kept = {name: getattr(self, name) for name in ("std", "seconds_per_victim", "family", "question", "tells")}
        kept |= {**threat.model_dump(), **dict(zip(("paper", "source"), paper, strict=True))}
        return {**super().row(), **kept, "role": self.role or ("baseline" if self.baseline else "ours")}


class _Difference(_Numbers):
    against: str
    ratio: tuple[Number, Number, Number] = (math.nan, math.nan, math.nan)

    def row(self) -> dict[str, Any]:
        return {**super().row(), "against": self.against, **dict(zip(RATIO, self.ratio, strict=True))}


class _Data(_Entry):
    name: str
    sha256: str


class _File(_Entry):
    """results.json."""

    format: Literal[1]
    experiment: str
    command: str
    seed: int
    commit: str | None
    versions: dict[str, str]
    data: _Data
    hardware: str
    seconds: float
    results: list[_Result]
    not_run: dict[str, str] = Field(default_factory=dict)
    causes: list[dict[str, Any]] = Field(default_factory=list)
    differences: list[_Difference] = Field(default_factory=list)
    gate: list[dict[str, Any]] = Field(default_factory=list)
    read_back: list[str] = Field(default_factory=list)
    details: dict[str, list[dict[str, Value]]] = Field(default_factory=dict)
    learner_check: str = ""

    def arguments(self) -> dict[str, Any]:
        """Arguments of `Run`."""
        plain = {name: getattr(self, name) for name in type(self).model_fields if name != "format"}
        results = _table([entry.row() for entry in self.results], _COLUMNS)
        differences = _table([entry.row() for entry in self.differences], DIFFERENCE)
        return {**plain, "data": self.data.model_dump(), "results": results, "differences": differences}


def _table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> pd.DataFrame:
    settings = dict.fromkeys(name for row in rows for name in row if name not in columns)
    return from_records(rows, [*columns, *settings]).astype({"n": "int64", "seeds": "int64"})


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
