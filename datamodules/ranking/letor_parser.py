"""Reading a LETOR file, ``GRADE qid:QUERY 1:VALUE 2:VALUE ... # comment``: scikit-learn does the parsing."""

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_svmlight_file
from tqdm import tqdm

from datamodules.io.array_cache import load_arrays, store_arrays
from datamodules.io.download import by_hand
from datamodules.ranking.letor_diagnosis import LetorLayout, first_fault
from datamodules.recommendation.interactions import Ints
from protocol.errors import InputError

Floats = npt.NDArray[np.float32]
_CHUNK_BYTES = 2**22


@dataclass(frozen=True)
class Queries:
    """Documents with their grades of relevance, those of one query consecutive.

    Attributes:
        features: ``(M, F)`` float32.
        grades: ``(M,)`` int64 from 0.
        offsets: ``(K + 1,)`` int64, where each query's documents begin.
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


def read_queries(path: Path, *, num_features: int, max_grade: int, page: str) -> Queries:
    """Reads a LETOR file, in a time near that of its parsing once, from a cache afterwards.

    The cache is keyed by the file's content, so a changed file is read anew.

    Args:
        path: the file.
        num_features: features of every line.
        max_grade: highest grade.
        page: where its owners publish the data set.

    Raises:
        InputError: the file is missing, empty, or broken in a line that is named.
    """
    if not path.is_file():
        raise by_hand(name=path.name, page=page, target=path)
    layout = LetorLayout(num_features, max_grade)
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


def _parse(path: Path, layout: LetorLayout, lines: int) -> Queries:
    """Parses chunk after chunk straight into the result: memory stays near the size of the result."""
    # A line takes at least as many bytes as its features here, so a file of line breaks cannot ask for terabytes.
    most = min(lines, path.stat().st_size // (4 * layout.num_features) + 1)
    features = np.empty((most, layout.num_features), np.float32)
    grades, queries = np.empty(most, np.int64), np.empty(most, np.int64)
    rows, line, finished, current = 0, 1, set[int](), None
    for chunk in _chunks(path):
        try:
            block = _parse_chunk(chunk, layout)
            begun = _begun(block[2], finished, current)
        except (ValueError, OverflowError):
            fault = first_fault(chunk, path=path, first_line=line, layout=layout, finished=finished, current=current)
            raise fault from None
        filled = slice(rows, rows + len(block[2]))
        features[filled], grades[filled], queries[filled] = block
        if begun:
            finished.update([] if current is None else [current], begun[:-1])
            current = begun[-1]
        rows, line = filled.stop, line + chunk.count(b"\n")
    if not rows:
        raise InputError(
            expected=f"queries in {path.name}", found=f"an empty file at {path}", way_out="Fetch it again."
        )
    starts = np.flatnonzero(np.diff(queries[:rows])) + 1
    return Queries(features[:rows], grades[:rows], np.concatenate([[0], starts, [rows]]))


def _chunks(path: Path) -> Iterator[bytes]:
    """Whole lines, some megabytes at a time.

    Not by the parser's own offset and length: where a line without data stands at a boundary, it reads the next twice.
    """
    bar = tqdm(total=path.stat().st_size, unit="B", unit_scale=True, desc=path.name, delay=2, leave=False, disable=None)
    with path.open("rb") as file, bar:
        while chunk := file.read(_CHUNK_BYTES):
            chunk += file.readline()
            yield chunk
            bar.update(len(chunk))


def _parse_chunk(chunk: bytes, layout: LetorLayout) -> tuple[Floats, Ints, Ints]:
    """Features ``(m, F)``, grades ``(m,)`` and queries ``(m,)`` of whole lines; ValueError where anything is wrong."""
    sparse, grades, queries = load_svmlight_file(
        io.BytesIO(chunk), n_features=layout.num_features, dtype=np.float32, zero_based=False, query_id=True
    )
    whole = (
        chunk.endswith(b"\n")
        and len(queries) == len(grades)
        # Ascending numbers within 1..F, F of them: all features, in order.
        and (np.diff(sparse.indptr) == layout.num_features).all()
        and np.isfinite(sparse.data).all()
        and ((grades >= 0) & (grades <= layout.max_grade) & (grades == np.floor(grades))).all()
    )
    if not whole:
        raise ValueError
    return sparse.data.reshape(-1, layout.num_features), grades.astype(np.int64), queries


def _begun(queries: Ints, finished: set[int], current: int | None) -> list[int]:
    """Queries that begin in a chunk, in order; ValueError where one of them began before."""
    starts = np.concatenate([[True], np.diff(queries) != 0])[: len(queries)]
    begun: list[int] = queries[starts].tolist()
    if begun and begun[0] == current:
        begun = begun[1:]
    if len(set(begun)) < len(begun) or current in begun or not finished.isdisjoint(begun):
        raise ValueError
    return begun
