"""Reading a ratings file: pandas does the parsing, and what is wrong is said with its line."""

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd

from errors import InputError


def read_ratings(
    path: Path, *, columns: list[str], numeric: list[str], separator: str, header: bool = False, encoding: str = "utf-8"
) -> pd.DataFrame:
    """Reads a delimited file.

    Args:
        path: the file.
        columns: names of its columns in order.
        numeric: those that must hold numbers.
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
    try:
        frame = pd.read_csv(
            path,
            sep=separator,
            names=columns,
            header=0 if header else None,
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
    except pd.errors.ParserError as error:
        raise _broken(path, columns, separator, str(error).strip()) from None
    if frame.empty:
        raise _empty(path)
    _check_fields(frame, path, columns, separator, first_line=2 if header else 1)
    for name in numeric:
        frame[name] = _numbers(frame, name, path, first_line=2 if header else 1)
    return frame


def sha256_of(path: Path) -> str:
    """Hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
    missing = frame.isna().to_numpy().any(axis=1)
    if missing.any():
        line = int(np.argmax(missing)) + first_line
        raise _broken(path, columns, separator, f"too few fields in line {line}")


def _numbers(frame: pd.DataFrame, name: str, path: Path, *, first_line: int) -> "pd.Series[float]":
    values = pd.to_numeric(frame[name], errors="coerce")
    bad = ~np.isfinite(values.to_numpy(dtype=float))
    if bad.any():
        position = int(np.argmax(bad))
        raise InputError(
            expected=f"a number as {name}",
            found=f"{frame[name].iloc[position]!r} in line {position + first_line} of {path}",
            way_out="Mend the line, or fetch the file again.",
        )
    return values


def _empty(path: Path) -> InputError:
    return InputError(expected=f"ratings in {path.name}", found=f"an empty file at {path}", way_out="Fetch it again.")


def _broken(path: Path, columns: list[str], separator: str, reason: str) -> InputError:
    return InputError(
        expected=f"{len(columns)} fields separated by {separator!r} ({', '.join(columns)})",
        found=f"{reason} of {path}",
        way_out="The file may be cut short or use another delimiter: fetch it again.",
    )
