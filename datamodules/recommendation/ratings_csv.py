"""Reading a ratings file: pandas does the parsing, and what is wrong is said with its line."""

import csv
import hashlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pandas as pd

from protocol.errors import InputError

_logger = logging.getLogger(__name__)
_DIGITS = frozenset("0123456789")
_LONGEST_WHOLE = 18
"""Digits of a whole number below 2^63."""
_MORE = "_more"
"""Fields of a line that are not in its columns."""


def read_ratings(
    path: Path,
    *,
    columns: list[str],
    whole: Sequence[str] = (),
    numeric: Mapping[str, tuple[float, float]] = MappingProxyType({}),
    separator: str,
    header: bool = False,
    encoding: str = "utf-8",
) -> pd.DataFrame:
    """Reads a delimited file; where the delimiter is a comma, fields may be quoted.

    Args:
        path: the file.
        columns: names of its columns in order.
        whole: those that hold whole numbers from 0, such as identifiers; read as int64, never through a float.
        numeric: those that hold other numbers, with the least and the largest.
        separator: between two fields.
        header: whether the first line names the columns.
        encoding: of the text.

    Raises:
        InputError: the file is missing, empty, of another encoding or delimiter, or broken in a line that is named.
    """
    if not path.is_file():
        raise InputError(
            expected=f"the file {path.name}",
            found=f"nothing at {path}",
            way_out="Put it there as the data set's page lays it out, or set download: true where that is possible.",
        )
    check_encoding(path, encoding)
    if separator == ",":
        _check_quotes(path, columns, encoding)
    try:
        frame = pd.read_csv(
            path,
            sep=separator,
            names=[*columns, _MORE],
            quoting=csv.QUOTE_MINIMAL if separator == "," else csv.QUOTE_NONE,
            header=None,
            skiprows=1 if header else 0,
            dtype=str,
            engine="c" if len(separator) == 1 else "python",
            keep_default_na=False,
            na_values=[""],
            skip_blank_lines=False,
            encoding=encoding,
            index_col=False,
        )
    except pd.errors.EmptyDataError:
        raise _empty(path) from None
    except (pd.errors.ParserError, csv.Error) as error:
        raise _broken(path, columns, separator, str(error).strip()) from None
    if frame.empty:
        raise _empty(path)
    _check_fields(frame, path, columns, separator, first_line=2 if header else 1)
    first_line = 2 if header else 1
    for name in whole:
        frame[name] = _whole(frame[name], path, first_line)
    for name, limits in numeric.items():
        frame[name] = _numbers(frame[name], limits, path, first_line)
    return frame[columns]


def sha256_of(path: Path) -> str:
    """Hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def warn_of_other(path: Path, published: str | None, found: str) -> None:
    """Says that a file has other bytes than its owners publish, which is no error: it may be a part of theirs.

    Args:
        path: of the file.
        published: hash of the published file, None where it is not known.
        found: hash of this one.
    """
    if published is not None and found != published:
        _logger.warning(
            "%s is not the published file: its sha256 begins with %s, not %s.", path, found[:12], published[:12]
        )


def check_encoding(path: Path, encoding: str) -> None:
    """Refuses a file of another encoding.

    Raises:
        InputError: a byte is not of that encoding; its line is named.
    """
    content = path.read_bytes()
    try:
        content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            expected=f"{path.name} in {encoding}",
            found=f"byte 0x{content[error.start]:02x} in line {line}",
            way_out=f"Convert the file to {encoding}, or fetch it again.",
        ) from None


def _check_fields(frame: pd.DataFrame, path: Path, columns: list[str], separator: str, *, first_line: int) -> None:
    missing = frame[columns].isna().to_numpy().any(axis=1)
    if missing.any():
        raise _broken(path, columns, separator, f"too few fields in line {int(np.argmax(missing)) + first_line}")
    more = frame[_MORE].notna().to_numpy()
    if more.any():
        raise _broken(path, columns, separator, f"too many fields in line {int(np.argmax(more)) + first_line}")


def _check_quotes(path: Path, columns: list[str], encoding: str) -> None:
    """A quotation mark that is not closed would swallow the lines behind it."""
    with path.open(encoding=encoding, newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            for number, _ in enumerate(reader, 1):
                if reader.line_num > number:
                    raise _broken(path, columns, ",", f"a quotation mark that is not closed in line {number}")
        except csv.Error as error:
            raise _broken(path, columns, ",", f"{error} in line {reader.line_num}") from None


def _whole(texts: "pd.Series[str]", path: Path, first_line: int) -> "pd.Series[int]":
    if not set("".join(texts)) <= _DIGITS or int(texts.str.len().max()) > _LONGEST_WHOLE:
        wrong = ~texts.str.fullmatch(rf"[0-9]{{1,{_LONGEST_WHOLE}}}").to_numpy(dtype=bool)
        raise _no_number(texts, wrong, f"a whole number from 0 as {texts.name}", path, first_line)
    return texts.astype(np.int64)


def _numbers(texts: "pd.Series[str]", limits: tuple[float, float], path: Path, first_line: int) -> "pd.Series[float]":
    values = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=float)
    with np.errstate(invalid="ignore"):
        wrong = ~((values >= limits[0]) & (values <= limits[1]))
    if not set("".join(texts)) <= {*_DIGITS, "."}:
        wrong |= ~texts.str.fullmatch(r"[0-9.]+").to_numpy(dtype=bool)
    if wrong.any():
        expected = f"a number from {limits[0]:g} to {limits[1]:g} as {texts.name}"
        raise _no_number(texts, wrong, expected, path, first_line)
    return pd.Series(values, index=texts.index, name=texts.name)


def _no_number(
    texts: "pd.Series[str]", wrong: npt.NDArray[np.bool_], expected: str, path: Path, first_line: int
) -> InputError:
    position = int(np.argmax(wrong))
    return InputError(
        expected=expected,
        found=f"{str(texts.iloc[position])[:100]!r} in line {position + first_line} of {path}",
        way_out="Correct the line, or fetch the file again.",
    )


def _empty(path: Path) -> InputError:
    return InputError(expected=f"ratings in {path.name}", found=f"an empty file at {path}", way_out="Fetch it again.")


def _broken(path: Path, columns: list[str], separator: str, reason: str) -> InputError:
    return InputError(
        expected=f"{len(columns)} fields separated by {separator!r} ({', '.join(columns)})",
        found=f"{reason} of {path}",
        way_out="The file may be cut short or use another delimiter: fetch it again.",
    )
