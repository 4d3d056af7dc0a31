"""Rows of text in CSV or JSON-lines files: what cannot be read is counted, and the first of it named by line."""

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from datamodules.recommendation.ratings_csv import check_encoding
from protocol.errors import InputError

BadRows = Literal["error", "drop"]
"""What to do with rows that cannot be read: refuse the file, or go on and say how many they were."""
LONGEST_FIELD = 2**31 - 1
"""Characters; Python's own limit of 131,072 is less than some blog posts have."""
_NAMED = 5


@dataclass
class Unparsable:
    """Rows that could not be read.

    Attributes:
        count: how many.
        lines: numbers, from 1, of the lines in which the first of them begin.
    """

    count: int = 0
    lines: list[int] = field(default_factory=list)

    def add(self, line: int) -> None:
        """One more."""
        self.count += 1
        if len(self.lines) < _NAMED:
            self.lines.append(line)

    def merge(self, other: "Unparsable") -> None:
        """Those of another file besides."""
        self.count += other.count
        self.lines = [*self.lines, *other.lines][:_NAMED]

    def refuse(self, path: Path, expected: str, bad_rows: BadRows) -> None:
        """Ends the reading where there are any and they are not to be dropped.

        Raises:
            InputError: with their number and the first lines.
        """
        if self.count and bad_rows == "error":
            more = "" if self.count == len(self.lines) else " ..."
            raise InputError(
                expected=expected,
                found=f"{self.count} unparsable rows in {path}, in lines {', '.join(map(str, self.lines))}{more}",
                way_out="Mend them, or set bad_rows: drop to go on without them.",
            )


def read_csv(
    path: Path,
    columns: Mapping[str, str | None],
    *,
    page: str,
    bad_rows: BadRows = "error",
    keep: Callable[[list[str]], bool] | None = None,
    headless: bool = False,
) -> tuple[dict[str, list[str]], Unparsable]:
    """Some columns of a CSV file whose first line names them; fields may be quoted and hold line ends.

    Args:
        path: the file.
        columns: their names, and for each a regular expression that its fields match whole; None for any text.
        page: where the file is to be had.
        bad_rows: what to do with rows that cannot be read.
        headless: the first line may be a row: where it does not name the columns, they are the file's in order.
        keep: of the chosen fields of a row, whether to keep it; None keeps all. Others take no memory.

    Returns:
        The fields of every column, and what could not be read.

    Raises:
        InputError: the file is missing, empty, not in UTF-8 or lacks a column; or rows cannot be read.
    """
    check_file(path, page)
    check_encoding(path, "utf-8")
    found: list[list[str]] = []
    unparsable = Unparsable()
    patterns = [None if pattern is None else re.compile(pattern) for pattern in columns.values()]
    csv.field_size_limit(LONGEST_FIELD)
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, [])
        except csv.Error as error:
            raise InputError(
                expected=f"the names of columns in the first line of {path.name}",
                found=f"{error} at {path}",
                way_out=f"Fetch the file again from {page}.",
            ) from None
        if headless and len(header) == len(columns) and not set(columns) & set(header):
            found.append(header)
            header = list(columns)
        places = _places(header, list(columns), path, page)
        for line, row in _rows(reader):
            if row is None or len(row) != len(header):
                unparsable.add(line)
                continue
            fields = [row[place] for place in places]
            if any(pattern and not pattern.fullmatch(text) for pattern, text in zip(patterns, fields, strict=True)):
                unparsable.add(line)
            elif keep is None or keep(fields):
                found.append(fields)
    unparsable.refuse(path, f"{len(header)} fields in every row ({', '.join(columns)} among them)", bad_rows)
    return {name: [fields[place] for fields in found] for place, name in enumerate(columns)}, unparsable


def read_json_lines(path: Path, parse: Callable[[Any], Any], *, page: str) -> Iterator[tuple[int, int, Any]]:
    """Objects of a file with one JSON object in each line, one after the other.

    Args:
        path: the file.
        parse: what to take of an object; where it raises KeyError, TypeError or ValueError the line is unparsable.
        page: where the file is to be had.

    Yields:
        The line's number from 1, the byte at which it begins, and what was taken: None where it is unparsable.
    """
    check_file(path, page)
    begin = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, begin, parse_json(line, parse)
            begin += len(line)


def parse_json(line: bytes, parse: Callable[[Any], Any]) -> Any:
    """What `parse` takes of one JSON object; None where that is impossible."""
    try:
        return parse(json.loads(line))
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None


def check_file(path: Path, page: str) -> None:
    """Refuses a file that is not there.

    Raises:
        InputError: with the page from which to fetch it.
    """
    if not path.is_file():
        raise InputError(
            expected=f"the file {path.name}",
            found=f"nothing at {path}",
            way_out=f"Fetch it from {page} and put it there.",
        )


def _rows(reader: Any) -> Iterator[tuple[int, list[str] | None]]:
    """Every row with the number of its first line; None for one that is no CSV. Empty lines are left out."""
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield line, None
            continue
        if row:
            yield line, row


def _places(header: Sequence[str], columns: Sequence[str], path: Path, page: str) -> list[int]:
    missing = [name for name in columns if name not in header]
    if missing:
        raise InputError(
            expected=f"the columns {', '.join(columns)} in the first line of {path.name}",
            found=f"no {missing[0]} among {', '.join(header)[:200] or 'nothing'} at {path}",
            way_out=f"Fetch the file again from {page}.",
        )
    return [header.index(name) for name in columns]
