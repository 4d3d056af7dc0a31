"""Rows of results in results.json: the numbers of an attack by a metric, and paired differences of attacks."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import pandas as pd
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    field_validator,
)

from fedleak.evaluation.result_names import ATTACKS, RATIO
from fedleak.evaluation.scores import SETTING, from_records, setting_of

STRICT = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)
"""Unknown keys, of another version, are dropped."""
Value = str | int | float | bool | None
Number = Annotated[float | None, AfterValidator(lambda value: math.nan if value is None else value)]
"""A number, null for NaN."""


class _Paper(BaseModel):
    model_config = STRICT
    value: float
    source: str


class _Threat(BaseModel):
    model_config = STRICT
    sees: str
    knows: str
    active: bool


class _Numbers(BaseModel):
    """Numbers of one attack, setting and metric."""

    model_config = STRICT
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
        same = {}
        for name in cls.model_fields:
            if name in row:
                is_nan = row[name] != row[name]
                same[name] = None if is_nan else row[name]
        return {**same, "setting": setting_of(row), "ci95": (row["low"], row["high"])}

    def row(self) -> dict[str, Any]:
        """Row of a table of results, with setting columns."""
        low, high = self.ci95
        same = self.model_dump(exclude={"setting", "ci95"})
        settings = {SETTING + key: value for key, value in self.setting.items()}
        return {**same, "low": low, "high": high, **settings}


class ResultRow(_Numbers):
    """Numbers of an attack by a metric, with what describes the attack and the value of its paper."""

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
    def of(cls, row: Mapping[str, Any]) -> "ResultRow":
        published = row.get("paper")
        paper = None
        if published is not None and published == published:  # not NaN
            paper = _Paper.model_construct(value=published, source=row["source"])
        threat_model = None
        if row["sees"] or row["knows"]:
            threat_model = _Threat.model_construct(sees=row["sees"], knows=row["knows"], active=row["active"])
        fields = {
            **cls.fields_of(row),
            "baseline": row["role"] not in ATTACKS,
            "paper": paper,
            "threat_model": threat_model,
        }
        return cls.model_construct(**fields)

    def row(self) -> dict[str, Any]:
        row = super().row()
        threat = row.pop("threat_model")
        paper = row.pop("paper")
        baseline = row.pop("baseline")
        row |= threat or {"sees": "", "knows": "", "active": False}
        if paper:
            row |= {"paper": paper["value"], "source": paper["source"]}
        else:
            row |= {"paper": math.nan, "source": None}
        # Files of earlier versions have no role.
        role_by_baseline = "baseline" if baseline else "ours"
        return {**row, "role": self.role or role_by_baseline}


class DifferenceRow(_Numbers):
    """Paired difference of an attack from another one."""

    against: str
    ratio: tuple[Number, Number, Number] = (math.nan, math.nan, math.nan)

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "DifferenceRow":
        ratio = tuple(row.get(name, math.nan) for name in RATIO)
        fields = {**cls.fields_of(row), "ratio": ratio}
        return cls.model_construct(**fields)

    def row(self) -> dict[str, Any]:
        return {**super().row(), **dict(zip(RATIO, self.ratio, strict=True))}


def table_of_rows(columns: tuple[str, ...], results: Sequence[_Numbers]) -> pd.DataFrame:
    """Table of results with these columns, and those of their settings."""
    rows = [result.row() for result in results]
    settings: dict[str, None] = {}
    for row in rows:
        settings.update(dict.fromkeys(name for name in row if name.startswith(SETTING)))
    return from_records(rows, [*columns, *settings]).astype({"n": "int64", "seeds": "int64"})
