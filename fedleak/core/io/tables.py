"""Delimited and JSON-lines text files: rows that cannot be read are counted, and the first ones named by line."""

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from fedleak.core.errors import InputError, require
from fedleak.core.io.files import check_file, check_utf8

BadRows = Literal["error", "drop"]
"""What to do with rows that cannot be read: refuse the file, or leave them out and count them."""
_LONGEST_FIELD = 2**31 - 1
"""Characters; Python's own limit of 131,072 is less than some blog posts have."""
_NAMED = 5
"""Lines that a message names of those that cannot be read."""


@dataclass(frozen=True)
class Field:
    """Content of a column.

    Attributes:
        meaning: what it holds, for error messages.
        convert: makes a value from the text; raises ValueError if the text is something else.
    """

    meaning: str
    convert: Callable[[str], Any]


def matching(pattern: str, meaning: str, convert: Callable[[str], Any] = str) -> Field:
    """Text that a regular expression matches completely, then converted."""
    complete = re.compile(pattern)

    def checked(text: str) -> Any:
        if complete.fullmatch(text) is None:
            raise ValueError(text)
        return convert(text)

    return Field(meaning, checked)


def number(least: float, most: float) -> Field:
    """A plain decimal number in a range."""

    def checked(text: str) -> float:
        value = float(text)
        # float() reads inf, nan, 1e3 and 1_000 as well.
        if not least <= value <= most or not _DECIMAL.fullmatch(text):
            raise ValueError(text)
        return value

    return Field(f"a number from {least:g} to {most:g}", checked)


_DECIMAL = re.compile("[0-9.]+")
TEXT = Field("text", str)
LINE = matching("[^\r\n]+", "text in one line")
WHOLE = matching("[0-9]{1,18}", "a whole number from 0", int)
STARS = matching(r"[1-5](\.0*)?", "stars from 1 to 5", float)


@dataclass
class Unparsable:
    """Rows that could not be read.

    Attributes:
        count: their number.
        lines: the first lines (from 1) at which such rows begin, at most 5.
        expected: what the first of them should hold.
        found: what it holds.
    """

    count: int = 0
    lines: list[int] = field(default_factory=list)
    expected: str = ""
    found: str = ""

    def add(self, line: int, expected: str = "", wrong_text: str = "") -> None:
        """Counts one more."""
        if not self.count:
            self.expected, self.found = expected, wrong_text
        self.merge(Unparsable(1, [line]))

    def merge(self, further: "Unparsable") -> None:
        """Adds those of another file."""
        self.count += further.count
        self.lines = [*self.lines, *further.lines][:_NAMED]

    def refuse(self, path: Path, expected: str, bad_rows: BadRows) -> None:
        """Ends the reading if there are any and they are not to be left out."""
        if not self.count or bad_rows != "error":
            return
        first = ""
        if self.found:
            first = f"{self.found} in line {self.lines[0]}: "
        listed_lines = ", ".join(map(str, self.lines))
        if self.count != len(self.lines):
            listed_lines += " ..."
        raise InputError(
            expected=self.expected or expected,
            found=f"{first}{self.count} unparsable rows of {path}, in lines {listed_lines}",
            way_out="Correct them or download the file again, or set bad_rows: drop where the data set has it.",
        )


def read_table(
    path: Path,
    columns: Mapping[str, Field],
    *,
    page: str,
    separator: str = ",",
    header: bool | None = True,
    bad_rows: BadRows = "error",
    keep: Callable[[list[Any]], bool] | None = None,
) -> tuple[dict[str, list[Any]], Unparsable]:
    """Columns of a delimited file in UTF-8; where the delimiter is a comma, fields may be quoted and span lines.

    Args:
        path: the file.
        columns: their names and contents.
        page: where to get the file.
        separator: delimiter, of one or more characters.
        header: whether the first line names the columns, of which the file may have more. False: the file has exactly
            `columns`, in this order. None: so it is if the first line names none of them.
        bad_rows: what to do with rows that cannot be read.
        keep: whether to keep a row, from its converted fields; None keeps all. Rows that are not kept use no memory.

    Returns:
        The values of every column, and the rows that could not be read.

    Raises:
        InputError: the file is missing, empty, not in UTF-8 or lacks a column; or rows cannot be read.
    """
    check_file(path, page)
    check_utf8(path)
    names = list(columns)
    fields = [columns[name] for name in names]
    table: list[list[Any]] = []
    unparsable = Unparsable()
    # Only the reader of CSV must see the ends of lines as they are: they may stand within quotes.
    is_csv = separator == ","
    with path.open(encoding="utf-8-sig", newline="" if is_csv else None) as file:
        rows = _quoted_rows(file) if is_csv else _plain_rows(file, separator)
        line, header_row = next(rows, (0, []))
        first_row = header_row or ()
        # Without a word of the caller, a first row is one of values if it has all columns and none of their names.
        is_headless = header is None and len(first_row) == len(names) and not set(names) & set(first_row)
        if header is False or is_headless:
            require(line, f"rows in {path.name}", f"an empty file at {path}", f"Download it again from {page}.")
            rows = chain([(line, header_row)], rows)
            header_row = names
        positions = _column_positions(header_row, names, path, page)
        width = len(header_row or ())
        expected = f"{width} fields separated by {separator!r} in every row ({', '.join(names)} among them)"
        for line, row in rows:
            if row is None:
                unparsable.add(line, expected, "broken quotes")
                continue
            if len(row) != width:
                unparsable.add(line, expected, f"{len(row)} fields")
                continue
            values = _converted(names, fields, [row[position] for position in positions], line, unparsable)
            if values is not None and (keep is None or keep(values)):
                table.append(values)
    unparsable.refuse(path, expected, bad_rows)
    values_by_name = {}
    for column, name in enumerate(names):
        values_by_name[name] = [values[column] for values in table]
    return values_by_name, unparsable


def read_json_lines(path: Path, parse: Callable[[Any], Any], *, page: str) -> Iterator[tuple[int, int, Any]]:
    """Reads a file with one JSON object per line.

    Args:
        path: the file.
        parse: makes a value from an object; if it raises KeyError, TypeError or ValueError the line is unparsable.
        page: where to get the file.

    Yields:
        Number of the line from 1, the byte at which it begins, and the value; None for an unparsable line.
    """
    check_file(path, page)
    begin = 0
    with path.open("rb") as file:
        for line_number, line in enumerate(file, 1):
            if line.strip():
                yield line_number, begin, parse_json_line(line, parse)
            begin += len(line)


def parse_json_line(line: bytes, parse: Callable[[Any], Any]) -> Any:
    """What `parse` makes of one JSON object; None if that is impossible."""
    try:
        return parse(json.loads(line))
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None


def _plain_rows(file: Any, separator: str) -> Iterator[tuple[int, list[str] | None]]:
    for line, text in enumerate(file, 1):
        yield line, text.rstrip("\n").split(separator)


def _quoted_rows(file: Any) -> Iterator[tuple[int, list[str] | None]]:
    """Every row with the number of its first line, None for a row that is no CSV; empty lines are left out."""
    csv.field_size_limit(_LONGEST_FIELD)
    reader = csv.reader(file, strict=True)
    while True:
        # A quoted field may span lines, and the reader counts them after the row.
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


def _column_positions(header: Sequence[str] | None, names: Sequence[str], path: Path, page: str) -> list[int]:
    stripped = [name.strip() for name in header or ()]
    missing = next((name for name in names if name not in stripped), None)
    if missing is not None:
        problem = f"no {missing} among {', '.join(stripped)[:200] or 'nothing'}"
        if header is None:
            problem = "broken quotes"
        raise InputError(
            expected=f"the columns {', '.join(names)} in the first line of {path.name}",
            found=f"{problem} at {path}",
            way_out=f"Download the file again from {page}.",
        )
    return [stripped.index(name) for name in names]


def _converted(
    names: Sequence[str], fields: Sequence[Field], texts: Sequence[str], line: int, unparsable: Unparsable
) -> list[Any] | None:
    """The values of a row; None if a field holds something else."""
    values = []
    for name, column, text in zip(names, fields, texts, strict=True):
        try:
            values.append(column.convert(text))
        except (ValueError, OverflowError):
            unparsable.add(line, f"{column.meaning} as {name}", repr(text[:100]))
            return None
    return values
