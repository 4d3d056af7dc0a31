"""Reader of LETOR files, ``GRADE qid:QUERY 1:VALUE 2:VALUE ... # comment``; scikit-learn does the parsing."""

import hashlib
import io
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_svmlight_file
from tqdm import tqdm

from fedleak.core.errors import InputError
from fedleak.core.io.array_files import load_arrays, store_arrays
from fedleak.core.io.files import check_file
from fedleak.datamodules.recommendation.interactions import Ints

Floats = npt.NDArray[np.float32]
_CHUNK_BYTES = 2**22
"""Bytes that are read at a time."""
_NUMBER = re.compile(rb"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Queries:
    """Documents with their grades of relevance, sorted by query.

    Attributes:
        features: ``(M, F)`` float32.
        grades: ``(M,)`` int64 from 0.
        offsets: ``(K + 1,)`` int64 position at which each query's documents begin.
    """

    features: Floats
    grades: Ints
    offsets: Ints

    @property
    def num_queries(self) -> int:
        """Number of queries K."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Ints:
        """``(K,)`` number of documents of each query."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class _LetorLayout:
    num_features: int
    max_grade: int


class _Fault(NamedTuple):
    """What a field should be, and what it is."""

    expected: str
    actual: str


def read_queries(path: Path, *, num_features: int, max_grade: int, page: str) -> Queries:
    """Reads a LETOR file, later from a cache whose key is the file's content.

    Raises:
        InputError: the file is missing, empty, or broken; the error names the first wrong line.
    """
    check_file(path, page)
    layout = _LetorLayout(num_features, max_grade)
    try:
        # One pass over the file gives the key of the cache and, if there is none, the size of the arrays.
        sha256, line_count = _sha256_and_lines(path)
        key = f"letor1-{num_features}-{max_grade}-{sha256}"
        arrays = load_arrays(key)
        if arrays is not None and arrays.keys() == {"features", "grades", "offsets"}:
            return Queries(**arrays)
        queries = _parse(path, layout, line_count)
    except OSError as error:
        raise InputError(
            expected=f"a readable file {path.name}",
            found=f"{error.strerror} at {path}",
            way_out="Give access to it.",
        ) from error
    store_arrays(key, vars(queries))
    return queries


def _sha256_and_lines(path: Path) -> tuple[str, int]:
    digest = hashlib.sha256()
    line_count = 0
    with path.open("rb") as file:
        while block := file.read(_CHUNK_BYTES):
            digest.update(block)
            line_count += block.count(b"\n")
    return digest.hexdigest(), line_count


def _parse(path: Path, layout: _LetorLayout, line_count: int) -> Queries:
    """Parses chunk by chunk straight into the result, so that memory stays close to the size of the result."""
    # A line has at least 4 bytes per feature, so a file of line breaks cannot ask for terabytes.
    most = min(line_count, path.stat().st_size // (4 * layout.num_features) + 1)
    features = np.empty((most, layout.num_features), np.float32)
    grades = np.empty(most, np.int64)
    queries = np.empty(most, np.int64)
    rows = 0
    line = 1
    finished: set[int] = set()  # queries whose documents have ended
    current: int | None = None  # the query of the last document
    for chunk in _chunks(path):
        try:
            chunk_features, chunk_grades, chunk_queries = _parse_chunk(chunk, layout)
            begun = _begun(chunk_queries, finished, current)
        except (ValueError, OverflowError):
            raise _first_fault(chunk, path, line, layout, finished, current) from None
        filled = slice(rows, rows + len(chunk_queries))
        features[filled] = chunk_features
        grades[filled] = chunk_grades
        queries[filled] = chunk_queries
        if begun:
            if current is not None:
                finished.add(current)
            finished.update(begun[:-1])
            current = begun[-1]
        rows = filled.stop
        line += chunk.count(b"\n")
    if not rows:
        raise InputError(
            expected=f"queries in {path.name}",
            found=f"an empty file at {path}",
            way_out="Download it again.",
        )
    starts = np.flatnonzero(np.diff(queries[:rows])) + 1
    return Queries(features[:rows], grades[:rows], np.concatenate([[0], starts, [rows]]))


def _chunks(path: Path) -> Iterator[bytes]:
    """Complete lines, some megabytes at a time.

    The parser's own offset and length would read a line twice that follows one without data at a boundary.
    """
    bar = tqdm(total=path.stat().st_size, unit="B", unit_scale=True, desc=path.name, delay=2, leave=False, disable=None)
    with path.open("rb") as file, bar:
        while chunk := file.read(_CHUNK_BYTES):
            chunk += file.readline()
            yield chunk
            bar.update(len(chunk))


def _parse_chunk(chunk: bytes, layout: _LetorLayout) -> tuple[Floats, Ints, Ints]:
    """Features ``(m, F)``, grades ``(m,)`` and queries ``(m,)`` of complete lines; ValueError if anything is wrong."""
    sparse, grades, queries = load_svmlight_file(
        io.BytesIO(chunk), n_features=layout.num_features, dtype=np.float32, zero_based=False, query_id=True
    )
    # The parser also reads lines without a query, with some of the features, or cut short at the end of the file.
    is_complete = chunk.endswith(b"\n") and len(queries) == len(grades)
    # Ascending numbers within 1..F, F of them: all features, in order.
    has_all_features = (np.diff(sparse.indptr) == layout.num_features).all() and np.isfinite(sparse.data).all()
    are_grades = ((grades >= 0) & (grades <= layout.max_grade) & (grades == np.floor(grades))).all()
    if not (is_complete and has_all_features and are_grades):
        raise ValueError
    return sparse.data.reshape(-1, layout.num_features), grades.astype(np.int64), queries


def _begun(queries: Ints, finished: set[int], current: int | None) -> list[int]:
    """Queries that begin in a chunk, in order; ValueError if one of them began before."""
    starts = np.concatenate([[True], np.diff(queries) != 0])[: len(queries)]
    begun: list[int] = queries[starts].tolist()
    if begun and begun[0] == current:
        begun = begun[1:]
    if len(set(begun)) < len(begun) or current in begun or not finished.isdisjoint(begun):
        raise ValueError
    return begun


def _first_fault(
    chunk: bytes, path: Path, first_line: int, layout: _LetorLayout, finished: AbstractSet[int], current: int | None
) -> InputError:
    """The error for the first wrong line of a chunk that the fast parser refused."""
    ended = set(finished)
    last_line = first_line + chunk.count(b"\n")
    # Not splitlines(), which also splits at a lone carriage return and so changes the numbers of the lines.
    for number, line in enumerate(chunk.split(b"\n"), first_line):
        fields = line.split(b"#", 1)[0].split()
        fault = _fault(fields, layout)
        if number == last_line and line:
            fault = _Fault("a line break after every line", "an end of the file, perhaps cut short,")
        if fault is None and fields:
            query = int(fields[1][4:])
            if query in ended:
                fault = _Fault("all documents of a query in consecutive lines", f"query {query} again")
            if current is not None and current != query:
                ended.add(current)
            current = query
        if fault is not None:
            return InputError(
                expected=fault.expected,
                found=f"{fault.actual} in line {number} of {path}",
                way_out="Correct the line, or download the file again.",
            )
    return InputError(
        expected="lines of a LETOR file",
        found=f"something else from line {first_line} on of {path}",
        way_out="Download the file again.",
    )


def _number(text: bytes) -> float:
    """Value of a decimal number; NaN of any other text, which is in no range."""
    if _NUMBER.fullmatch(text) is None:
        return np.nan
    return float(text)


def _fault(fields: list[bytes], layout: _LetorLayout) -> _Fault | None:
    """The first wrong field of a line; None if all are right."""
    if not fields:
        return None
    # What each field should be: the grade, the query, and then the features in order.
    features = layout.num_features
    expected = [f"a grade, a whole number from 0 to {layout.max_grade},", "the query as qid:NUMBER after the grade"]
    for feature in range(1, features + 1):
        expected.append(f"feature {feature} of {features} as {feature}:VALUE with a finite number")
    for position, field in enumerate(fields[: len(expected)]):
        name, colon, text = field.partition(b":")
        if position == 0:
            is_valid = _number(field) in range(layout.max_grade + 1)
        elif position == 1:
            is_valid = name == b"qid" and re.fullmatch(rb"-?\d{1,19}", text) is not None
        else:
            is_valid = name + colon == b"%d:" % (position - 1) and abs(_number(text)) <= _LARGEST
        if not is_valid:
            return _Fault(expected[position], ascii(field[:40].decode("latin1")))
    if len(fields) - 2 != features:
        return _Fault(f"{features} features", f"{len(fields) - 2}")
    return None
