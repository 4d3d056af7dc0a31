"""Numbers of a statement, and the base class of what is read and written."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from decimal import Decimal
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from fedleak.core.taxonomy import Taxonomy
from fedleak.evaluation.range import Range

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
    """Names in public taxonomies, null where none fits; see docs/theory/taxonomies.md."""

    nist: str | None
    """attack of NIST AI 100-2 E2025"""
    atlas: str | None
    """technique of MITRE ATLAS 5.6"""
    aisvs: str | None
    """section or requirement of OWASP AISVS 1.0"""
    letter: str | None
    """threat model, A to H, of the USENIX Security 2025 systematisation; several where attacks differ"""


def of_taxonomy(taxonomy: Taxonomy) -> Names:
    """Names of an entry of the table of taxonomies."""
    return Names(**asdict(taxonomy))


def plain(value: float) -> Number:
    """A number as JSON can hold it."""
    value = float(value)
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "infinite"
    return value


def of_range(value_range: Range) -> Interval:
    """Interval of a range."""
    return Interval(value=plain(value_range.value), low=plain(value_range.low), high=plain(value_range.high))


def of_row(row: Mapping[str, Any]) -> Interval:
    """Mean and interval of a row of results."""
    return of_range(Range(row["mean"], row["low"], row["high"]))


def shown(number: Number, *, whole: bool = False) -> str:
    """Label of a number that reads the same wherever commas and points separate thousands.

    It has three digits at most, no zeros at its end, and spaces between thousands.

    >>> shown(50.0), shown(0.71834), shown(1.0), shown(1e-5), shown(30.04)
    ('50', '0.718', '1', '0.00001', '30')
    >>> shown(12000.0, whole=True).split()
    ['12', '000']
    """
    if number is None:
        return "undefined"
    if number == "infinite":
        return number
    size = abs(number)
    if whole or size >= 100:
        return f"{number:,.0f}".replace(",", "\u00a0")
    # Two digits without an exponent: 1e-05 is 0.00001.
    if 0 < size < 0.001:
        return f"{Decimal(f'{number:.2g}'):f}"
    # What rounds to 1 is not certain.
    if 0.9995 <= number < 1:
        return "above 0.999"
    # Three digits: those before the point decide how many stand after it.
    if size < 1:
        decimals = 3
    elif size < 10:
        decimals = 2
    else:
        decimals = 1
    return f"{number:.{decimals}f}".rstrip("0").rstrip(".")


def hundredths(number: float) -> str:
    """Label of a number from 0 to 100 without decimals, which is 0 or 100 only where the number is.

    >>> hundredths(99.7), hundredths(100.0), hundredths(0.2), hundredths(71.8)
    ('more than 99', '100', 'less than 1', '72')
    """
    if 99.5 <= number < 100:
        return "more than 99"
    if 0 < number < 0.5:
        return "less than 1"
    return f"{number:.0f}"


def in_percent(share: Number) -> str:
    """Label of a share in percent.

    >>> in_percent(0.003), in_percent(0.884), in_percent(0.9999)
    ('0.3%', '88%', 'more than 99%')
    """
    if not isinstance(share, float):
        return shown(share)
    of_hundred = 100 * share
    if not 0 < share < 0.1:
        return f"{hundredths(of_hundred)}%"
    digits = 1 if share > 0.01 else 4  # a share below 1% keeps two digits that are not 0
    return f"{shown(round(of_hundred, digits))}%"


def percent(share: Interval) -> str:
    """Label of a share with its interval, in percent."""
    return f"{in_percent(share.value)} ({in_percent(share.low)} to {in_percent(share.high)})"


def with_interval(interval: Interval, *, whole: bool = False) -> str:
    """Label of a number with its interval."""
    value = shown(interval.value, whole=whole)
    low = shown(interval.low, whole=whole)
    high = shown(interval.high, whole=whole)
    return f"{value} ({low} to {high})"
