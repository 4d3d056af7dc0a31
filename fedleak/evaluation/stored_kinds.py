"""Kinds of what a stored evaluation holds: its checksum needs no key, so that any value may stand anywhere."""

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, field_validator

from fedleak.core.roc_grid import POINTS
from fedleak.evaluation.labels import Label
from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.result_names import CLIENTS, DISTANCE
from fedleak.evaluation.scores import SCHEMA, AttackInfo

_TEXTS = ("object", "str", "string")
_WHOLE = ("int64",)
_NUMBERS = ("int64", "float64")
_KINDS = (*_TEXTS, *_NUMBERS, "bool")
"""Types of columns that a stored table may have."""
_PROFILE = {
    "attack": _TEXTS,
    "seed": _WHOLE,
    "round": _WHOLE,
    "class": _WHOLE,
    "true": _NUMBERS,
    "inferred": _NUMBERS,
}
"""Types of the columns of class shares."""
_OF_CLIENTS = {"victim": _WHOLE, "low": (*_NUMBERS, "object"), "high": (*_NUMBERS, "object")}
"""Further columns of shares of single clients."""
_OVER_CLIENTS = {CLIENTS: _WHOLE, DISTANCE: _NUMBERS}
"""Further columns of shares over clients."""
_SCORES = {name: {"object": _TEXTS, "float64": _NUMBERS}.get(kind, (kind,)) for name, kind in SCHEMA.items()}
"""Types of the columns of scores; whole numbers are numbers too."""
_LARGEST_PICTURES = 2**26
"""Numbers of the pictures of one attack."""
STRICT = ConfigDict(strict=True, extra="forbid")
"""Of every part of a stored file: no value is taken for one of another kind, and no key is passed over."""

_Value = Annotated[str | int | float | bool | None, Field(union_mode="left_to_right")]
"""A cell of a table; the first kind that fits, which is the only one, because nothing is taken for another kind."""
Columns = dict[str, tuple[str, list[_Value]]]
"""Type and values of each column of a table, which `table_of` reads."""
_Rates = Annotated[list[float], Field(min_length=POINTS, max_length=POINTS)]


class Pixels(BaseModel):
    """Images in [0, 1], in eight bits.

    Attributes:
        shape: ``(N, channels, height, width)``.
        base64: their bytes.
    """

    model_config = STRICT
    shape: tuple[PositiveInt, PositiveInt, PositiveInt, PositiveInt]
    base64: str

    @field_validator("shape")
    @classmethod
    def _not_too_large(cls, shape: tuple[int, ...]) -> tuple[int, ...]:
        if math.prod(shape) > _LARGEST_PICTURES:
            raise ValueError("pictures of another shape")
        return shape


class EvaluationParts(BaseModel):
    """Parts of a stored evaluation, see `fedleak.evaluation.evaluation.Evaluation`, as they stand in its file.

    Curves are their rates and the number of clients; pictures are the originals and what was inferred of them.
    """

    model_config = STRICT
    scores: Columns
    lines: dict[str, AttackInfo]
    roc: dict[str, tuple[_Rates, NonNegativeInt]]
    missing: dict[str, Reason]
    unrelated: dict[str, Reason]
    not_under_defences: dict[str, Reason]
    pictures: dict[str, tuple[Pixels, Pixels]]
    figures: list[dict[str, Any]]
    profiles: Columns
    details: dict[str, Columns]
    labels: dict[str, Label]


def scores_of(columns: Columns) -> pd.DataFrame:
    """Table of scores.

    Raises:
        ValueError: a column is missing or of another kind.
    """
    return _checked(table_of(columns), _SCORES)


def profiles_of(columns: Columns) -> pd.DataFrame:
    """Table of class shares, of single clients or over them; empty without columns.

    Raises:
        ValueError: a column is missing or of another kind.
    """
    if not columns:
        return pd.DataFrame()
    further = _OF_CLIENTS if "victim" in columns else _OVER_CLIENTS
    return _checked(table_of(columns), _PROFILE | further)


def table_of(columns: Columns) -> pd.DataFrame:
    """Table of plain values.

    Raises:
        ValueError: a column has an unknown type, another length, or a value of another type.
    """
    table = {}
    for name, (kind, values) in columns.items():
        if kind not in _KINDS:
            raise ValueError(f"a column of the kind {kind[:20]!r}")
        table[name] = pd.Series(values, dtype=kind)
    if len({len(values) for values in table.values()}) > 1:
        raise ValueError("columns of several lengths")
    return pd.DataFrame(table)


def _checked(table: pd.DataFrame, kinds: Mapping[str, tuple[str, ...]]) -> pd.DataFrame:
    """A table, after a check that it has columns of these types, and texts where they are due."""
    for name, allowed in kinds.items():
        if name not in table or str(table[name].dtype) not in allowed:
            raise ValueError(f"no column {name} of the kind {allowed[0]}")
        if allowed == _TEXTS and not _are(table[name], str):
            raise ValueError(f"a value of {name} that is no text")
    return table


def _are(values: Iterable[Any], kind: type | tuple[type, ...]) -> bool:
    return all(isinstance(value, kind) for value in values)
