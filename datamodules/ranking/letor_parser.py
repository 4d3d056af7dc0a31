"""Reader of LETOR files, ``GRADE qid:QUERY 1:VALUE 2:VALUE ... # comment``; scikit-learn does the parsing."""

import hashlib
import io
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

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
class _Layout:
    num_features: int
    max_grade: int


def read_queries(path: Path, *, num_features: int, max_grade: int, page: str) -> Queries:
    """Reads a LETOR file, later from a cache whose key is the file's content.

    Raises:
        InputError: the file is missing, empty, or broken; the error names the first wrong line.
    """
    check_file(path, page)
    layout = _Layout(num_features, max_grade)
    try:
        sha256, lines = _sha256_and_lines(path)
        key = f"letor1-{num_features}-{max_grade}-{sha256}"
        arrays = load_arrays(key)
        if arrays is not None and arrays.keys() == {"features", "grades", "offsets"}:
            return Queries(**arrays)
        queries = _parse(path, layout, lines)
    except OSError as error:
        raise InputError(
            expected=f"a readable file {path.name}", found=f"{error.strerror} at {path}", way_out="Give access to it."
        ) from error
    store_arrays(key, vars(queries))
    return queries


def _sha256_and_lines(path: Path) -> tuple[str, int]:
    digest, lines = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(_CHUNK_BYTES):
            digest.update(block)
            lines += block.count(b"\n")
    return digest.hexdigest(), lines


def _parse(path: Path, layout: _Layout, lines: int) -> Queries:
    """Parses chunk by chunk straight into the result, so that memory stays close to the size of the result."""
    # A line has at least 4 bytes per feature, so a file of line breaks cannot ask for terabytes.
    most = min(lines, path.stat().st_size // (4 * layout.num_features) + 1)
    features = np.empty((most, layout.num_features), np.float32)
    grades, queries = np.empty(most, np.int64), np.empty(most, np.int64)
    rows, line, finished, current = 0, 1, set[int](), None
    for chunk in _chunks(path):
        try:
            block = _parse_chunk(chunk, layout)
            begun = _begun(block[2], finished, current)
        except (ValueError, OverflowError):
            raise _first_fault(chunk, path, line, layout, finished, current) from None
        filled = slice(rows, rows + len(block[2]))
        features[filled], grades[filled], queries[filled] = block
        if begun:
            finished.update([] if current is None else [current], begun[:-1])
            current = begun[-1]
        rows, line = filled.stop, line + chunk.count(b"\n")
    if not rows:
        raise InputError(
            expected=f"queries in {path.name}", found=f"an empty file at {path}", way_out="Download it again."
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


def _parse_chunk(chunk: bytes, layout: _Layout) -> tuple[Floats, Ints, Ints]:
    """Features ``(m, F)``, grades ``(m,)`` and queries ``(m,)`` of complete lines; ValueError if anything is wrong."""
    sparse, grades, queries = load_svmlight_file(
        io.BytesIO(chunk), n_features=layout.num_features, dtype=np.float32, zero_based=False, query_id=True
    )
    right = (
        chunk.endswith(b"\n")
        and len(queries) == len(grades)
        # Ascending numbers within 1..F, F of them: all features, in order.
        and (np.diff(sparse.indptr) == layout.num_features).all()
        and np.isfinite(sparse.data).all()
        and ((grades >= 0) & (grades <= layout.max_grade) & (grades == np.floor(grades))).all()
    )
    if not right:
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
    chunk: bytes, path: Path, first_line: int, layout: _Layout, finished: AbstractSet[int], current: int | None
) -> InputError:
    """The error for the first wrong line of a chunk that the fast parser refused."""
    gone = set(finished)
    # Not splitlines(), which also splits at a lone carriage return and so changes the numbers of the lines.
    for number, line in enumerate(chunk.split(b"\n"), first_line):
        last = number == first_line + chunk.count(b"\n")
        fields = line.split(b"#", 1)[0].split()
        cut = "a line break after every line", "an end of the file, perhaps cut short,"
        fault = cut if last and line else _fault(fields, layout)
        if fault is None and fields:
            query = int(fields[1][4:])
            if query in gone:
                fault = "all documents of a query in consecutive lines", f"query {query} again"
            gone |= {current} - {None, query}  # type: ignore[arg-type]
            current = query
        if fault is not None:
            found = f"{fault[1]} in line {number} of {path}"
            return InputError(expected=fault[0], found=found, way_out="Correct the line, or download the file again.")
    found = f"something else from line {first_line} on of {path}"
    return InputError(expected="lines of a LETOR file", found=found, way_out="Download the file again.")


def _fault(fields: list[bytes], layout: _Layout) -> tuple[str, str] | None:
    """What the first wrong field of a line should be, and what it is; None if all are right."""
    if not fields:
        return None
    last = layout.num_features
    grade = f"a grade, a whole number from 0 to {layout.max_grade},"
    qid = "the query as qid:NUMBER after the grade"
    values = [f"feature {n} of {last} as {n}:VALUE with a finite number" for n in range(1, last + 1)]
    for place, (expected, field) in enumerate(zip([grade, qid, *values], fields, strict=False)):
        name, colon, text = field.partition(b":")
        number = float(match[0]) if (match := _NUMBER.fullmatch(text if place else field)) else np.nan
        right = {
            0: number in range(layout.max_grade + 1),
            1: name == b"qid" and re.fullmatch(rb"-?\d{1,19}", text) is not None,
        }.get(place, name + colon == b"%d:" % (place - 1) and abs(number) <= _LARGEST)
        if not right:
            return expected, ascii(field[:40].decode("latin1"))
    if len(fields) - 2 != last:
        return f"{last} features", f"{len(fields) - 2}"
    return None
