"""Numbers of a statement, and the base class of what is read and written."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from evaluation.risk import Range
from evaluation.scores import number
from protocol.taxonomy import Taxonomy

Number = float | Literal["infinite"] | None
"""A number; null where it is not defined."""
Cell = str | int | float | bool | None


class Strict(BaseModel):
    """Base class of what is read and written: known fields only, no conversion of types, finite numbers."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Interval(Strict):
    """Number with its 95% interval."""

    value: Number
    """the number"""
    low: Number
    """lower end"""
    high: Number
    """upper end"""


class Names(Strict):
    """Names in public taxonomies, null where none fits; see docs/taxonomies.md."""

    nist: str | None
    """attack of NIST AI 100-2 E2025"""
    atlas: str | None
    """technique of MITRE ATLAS 5.6"""
    aisvs: str | None
    """section or requirement of OWASP AISVS 1.0"""
    letter: str | None
    """threat model, A to H, of the USENIX Security 2025 systematisation; several where attacks differ"""


def of_taxonomy(found: Taxonomy) -> Names:
    """Names of an entry of the table of taxonomies."""
    return Names(**asdict(found))


def plain(value: float) -> Number:
    """A number as JSON can hold it."""
    value = float(value)
    return None if math.isnan(value) else "infinite" if math.isinf(value) else value


def of_range(found: Range) -> Interval:
    """Interval of a range."""
    return Interval(value=plain(found.value), low=plain(found.low), high=plain(found.high))


def of_row(row: Mapping[str, Any]) -> Interval:
    """Mean and interval of a row of results."""
    return of_range(Range(row["mean"], row["low"], row["high"]))


def shown(found: Number, *, whole: bool = False) -> str:
    """Label of a number, with three decimals or as a whole number."""
    if found is None or found == "infinite":
        return "undefined" if found is None else found
    return f"{found:,.0f}" if whole else number(found)


def with_interval(found: Interval, *, whole: bool = False) -> str:
    """Label of a number with its interval."""
    return f"{shown(found.value, whole=whole)} ({shown(found.low, whole=whole)} to {shown(found.high, whole=whole)})"
