"""Dates as data sets write them -> days; one that cannot be read is `UNDATED`, never guessed."""

import datetime
import re
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from datamodules.devices.user_examples import UNDATED

_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_NUMBER = {name: number for number, name in enumerate(_MONTHS, 1)}
_SHORT = {name[:3]: number for name, number in _NUMBER.items()}
_BLOG = re.compile(r"\s*(\d{1,2}),([^,]+),(\d{4})\s*")
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:[T ].*)?")
_TWEET = re.compile(r"\w{3} (\w{3}) (\d{2}) (\d\d):(\d\d):(\d\d) \w+ (\d{4})")


def days_of(texts: Iterable[str], parse: Callable[[str], int]) -> npt.NDArray[np.int64]:
    """``(N,)`` proleptic ordinals of N dates; every different text is parsed once.

    Args:
        texts: the dates.
        parse: one of the functions below.
    """
    known: dict[str, int] = {}
    return np.array([known[text] if text in known else known.setdefault(text, parse(text)) for text in texts], np.int64)


def blog_day(text: str) -> int:
    """Of ``02,August,2004``; months named in another language than English are not read."""
    found = _BLOG.fullmatch(text)
    return UNDATED if found is None else _ordinal(found[3], _NUMBER.get(found[2].strip().lower(), 0), found[1])


def iso_day(text: str) -> int:
    """Of ``2011-01-26``, with or without a time behind it."""
    found = _ISO.fullmatch(text.strip())
    return UNDATED if found is None else _ordinal(found[1], int(found[2]), found[3])


def tweet_moment(text: str) -> tuple[int, int]:
    """Day and second of the day of ``Sat May 16 22:18:35 PDT 2009``; the zone is that of nearly all, and left out."""
    found = _TWEET.fullmatch(text.strip())
    if found is None:
        return UNDATED, 0
    day = _ordinal(found[6], _SHORT.get(found[1].lower(), 0), found[2])
    return day, 3600 * int(found[3]) + 60 * int(found[4]) + int(found[5])


def _ordinal(year: str, month: int, day: str) -> int:
    try:
        return datetime.date(int(year), month, int(day)).toordinal()
    except ValueError:
        return UNDATED
