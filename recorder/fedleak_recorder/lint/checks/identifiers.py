"""Keys and identifiers: names such as patient_id, addresses of e-mail and IP, UUIDs, hexadecimal keys, long digits."""

import itertools
import re
from collections.abc import Iterator

import numpy as np

from fedleak_recorder.arrays import Array
from fedleak_recorder.lint.any_message import AnyMessage
from fedleak_recorder.lint.data_grid import is_masked
from fedleak_recorder.lint.finding import Finding
from fedleak_recorder.lint.name_words import words_of
from fedleak_recorder.lint.sample import column_of
from fedleak_recorder.lint.settings import Settings

_PERSONS = ("patient", "subject", "user", "customer", "client", "person", "member", "account", "record", "mrn", "case")
_SINGLE = {"ssn", "mrn", "email", "iban", "passport", "username", "surname", "firstname", "lastname", "phone"}
_PATTERNS = {
    "an e-mail address": re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,4}\b"),
    "a UUID": re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"),
    "an IP address": re.compile(
        r"(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\d.])"
    ),
    "a hexadecimal key": re.compile(r"(?<![0-9A-Za-z])(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{32,128}(?![0-9A-Za-z])"),
    "a number of 9 digits or more": re.compile(r"(?<![\d.eE+-])\d{9,20}(?![\d.])"),
}
_OF_CODE = {"hash", "sha", "sha256", "digest", "commit", "revision", "version", "checksum", "fingerprint"}
"""Words of names whose keys are those of code or models."""
_LONGEST = 2**16
"""Characters of a text that are looked at."""
_MOST_TEXTS = 2000
_FEWEST = 8
_LONG_NUMBER = 10**8
"""Whole numbers from which on several different ones are keys."""


def findings(message: AnyMessage, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001 - as every check
    """Texts, numbers and names that identify somebody."""
    for name, text in itertools.islice(message.texts.items(), _MOST_TEXTS):
        if _is_key_name(name):
            yield Finding("identifiers", "a text with the name of a person's key", name, "certain")
            continue
        for what, pattern in _PATTERNS.items():
            is_of_code = bool(_OF_CODE & {*words_of(name)})
            if not is_of_code and pattern.search(text, 0, _LONGEST):
                yield Finding("identifiers", what, name, "likely")
                break
    for name in message.numbers:
        if _is_key_name(name):
            yield Finding("identifiers", "a number with the name of a person's key", name, "certain")
    for name, array in message.arrays.items():
        if array.dtype.kind in "iu" and _is_key_name(name):
            yield Finding("identifiers", f"{array.size} numbers with the name of a person's key", name, "certain")
        elif _is_long_numbers(array):
            yield Finding("identifiers", f"{array.size} different whole numbers of 9 digits or more", name, "likely")


def _is_key_name(name: str) -> bool:
    """Whether a name is that of a person's key, such as ``patient_id``.

    Of a client of a federation too: its name is known to the server, and that of a bank's client is not.
    """
    words = words_of(name)
    if _SINGLE & {*words}:
        return True
    return any(
        first in _PERSONS and second in ("id", "ids", "key", "name") for first, second in itertools.pairwise(words)
    )


def _is_long_numbers(array: Array) -> bool:
    """Whether an array has large whole numbers that are all different."""
    column = column_of(array)
    if column is None or column.dtype.kind not in "iu" or len(column) < _FEWEST:
        return False
    return bool(column.min() >= _LONG_NUMBER) and not is_masked(column) and len(np.unique(column)) == len(column)
