"""Parsers of the dates of data sets; an unreadable date becomes `UNDATED`, never a guess."""

import datetime
import re
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from fedleak.datamodules.devices.user_examples import UNDATED

_ISO = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[T ].*)?")


def days_of(texts: Iterable[str], parse: Callable[[str], int]) -> npt.NDArray[np.int64]:
    """``(N,)`` proleptic ordinals of N dates, by one of the functions below; every different text is parsed once."""
    day_of_text: dict[str, int] = {}
    days = []
    for text in texts:
        if text not in day_of_text:
            day_of_text[text] = parse(text)
        days.append(day_of_text[text])
    return np.array(days, np.int64)


def blog_day(text: str) -> int:
    """Day of ``02,August,2004``; months in other languages than English are not read."""
    moment = _parsed("".join(text.split()), "%d,%B,%Y")
    if moment is None:
        return UNDATED
    return moment.toordinal()


def iso_day(text: str) -> int:
    """Day of ``2011-01-26``, with or without a time after it."""
    match = _ISO.fullmatch(text.strip())
    moment = None
    if match is not None:
        moment = _parsed(match[1], "%Y-%m-%d")
    if moment is None:
        return UNDATED
    return moment.toordinal()


def tweet_moment(text: str) -> tuple[int, int]:
    """Day and second of the day of ``Sat May 16 22:18:35 PDT 2009``; the time zone, nearly always PDT, is ignored."""
    fields = text.split()
    # Without the name of the day, and without the time zone.
    moment = _parsed(" ".join((*fields[1:4], *fields[5:])), "%b %d %H:%M:%S %Y")
    if moment is None:
        return UNDATED, 0
    return moment.toordinal(), moment.hour * 3600 + moment.minute * 60 + moment.second


def _parsed(text: str, form: str) -> datetime.datetime | None:
    try:
        return datetime.datetime.strptime(text, form)
    except ValueError:
        return None
