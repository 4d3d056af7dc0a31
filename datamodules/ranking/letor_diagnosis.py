"""The slow look at lines of a LETOR file that its fast parser refused: which one is wrong, and in what."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from protocol.errors import InputError


@dataclass(frozen=True)
class LetorLayout:
    """What every line of a LETOR file must hold.

    Attributes:
        num_features: number of features, all of them given in every line.
        max_grade: highest grade of relevance; grades are whole numbers from 0.
    """

    num_features: int
    max_grade: int


class _FaultError(Exception):
    def __init__(self, expected: str, found: str) -> None:
        self.expected, self.found = expected, found


def first_fault(
    chunk: bytes, *, path: Path, first_line: int, layout: LetorLayout, finished: AbstractSet[int], current: int | None
) -> InputError:
    """Says what is wrong with the first bad line of a part of a file.

    Args:
        chunk: whole lines.
        path: the file they are from.
        first_line: number of the first of them, from 1.
        layout: what a line must hold.
        finished: queries whose documents ended before this part.
        current: query of the last document before this part.
    """
    gone = set(finished)
    for number, line in enumerate(_lines(chunk), first_line):
        try:
            query = _check_line(line, layout)
            if query is None:
                continue
            if query in gone:
                raise _FaultError("all documents of a query in consecutive lines", f"query {query} again")
        except _FaultError as fault:
            return _error(fault.expected, f"{fault.found} in line {number} of {path}")
        if current is not None and query != current:
            gone.add(current)
        current = query
    return _error("lines of a LETOR file", f"something else from line {first_line} on of {path}")


def _lines(chunk: bytes) -> list[bytes]:
    # Not splitlines(): it also splits at a lone carriage return, which would change the numbers of the lines.
    lines = chunk.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _error(expected: str, found: str) -> InputError:
    return InputError(expected=expected, found=found, way_out="Mend the line, or fetch the file again.")


def _check_line(line: bytes, layout: LetorLayout) -> int | None:
    """The query of a line, None where it holds only a comment or nothing."""
    data = line.split(b"#", 1)[0]
    strange = next((byte for byte in data if byte > 126 or (byte < 32 and byte not in b"\t\n\v\f\r")), None)
    if strange is not None:
        raise _FaultError("plain ASCII text", f"byte 0x{strange:02x}")
    if not line.endswith(b"\n"):
        raise _FaultError("a line break after every line", "an end of the file, perhaps cut short,")
    fields = data.split()
    if not fields:
        return None
    _check_grade(fields[0], layout.max_grade)
    query = _query(fields[1:])
    for position, field in enumerate(fields[2:], 1):
        _check_feature(field, position, layout.num_features)
    if len(fields) - 2 != layout.num_features:
        raise _FaultError(f"{layout.num_features} features", f"{len(fields) - 2}")
    return query


def _check_grade(field: bytes, max_grade: int) -> None:
    grade = _number(field)
    if grade is None or not grade.is_integer() or not 0 <= grade <= max_grade:
        raise _FaultError(f"a grade, a whole number from 0 to {max_grade},", _shown(field))


def _query(fields: list[bytes]) -> int:
    if not fields or not fields[0].startswith(b"qid:"):
        raise _FaultError("the query as qid:NUMBER after the grade", _shown(fields[0]) if fields else "nothing")
    try:
        query = int(fields[0][4:])
    except ValueError:
        query = 2**63
    if not -(2**63) <= query < 2**63:
        raise _FaultError("the query as qid:NUMBER after the grade", _shown(fields[0]))
    return query


def _check_feature(field: bytes, position: int, num_features: int) -> None:
    index, colon, value = field.partition(b":")
    if not colon or not index.isdigit():
        raise _FaultError("features as INDEX:VALUE", _shown(field))
    if not 1 <= int(index) <= num_features:
        raise _FaultError(f"feature numbers from 1 to {num_features}", _shown(field))
    if int(index) != position:
        raise _FaultError(f"feature {position}, for all features stand in ascending order,", _shown(field))
    number = _number(value)
    # What is finite in the file may be too large for the arrays.
    if number is None or not abs(number) <= float(np.finfo(np.float32).max):
        raise _FaultError("a finite number as the value of a feature", _shown(field))


def _number(field: bytes) -> float | None:
    try:
        return float(field)
    except ValueError:
        return None


def _shown(field: bytes) -> str:
    return repr(field[:40].decode("ascii", "replace"))
