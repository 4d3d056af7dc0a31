"""Tiny files in LETOR's real layout."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

Documents = list[tuple[int, int, list[float]]]


def documents(lengths: Sequence[int], *, features: int, grades: int, seed: int = 0) -> Documents:
    """Grade, query and features; queries are numbered in an order of their own, as in the real files."""
    random = np.random.default_rng(seed)
    return [
        (int(random.integers(grades)), 10_000 - 7 * query, np.round(random.normal(size=features), 6).tolist())
        for query, length in enumerate(lengths)
        for _ in range(length)
    ]


def text(rows: Documents, *, end: str = "\n", comment: bool = True) -> str:
    return "".join(
        f"{grade} qid:{query} "
        + " ".join(f"{number}:{value:.6f}" for number, value in enumerate(values, 1))
        + (f" #docid = GX{row:03}-1 inc = 1 prob = 0.5" if comment else " ")
        + end
        for row, (grade, query, values) in enumerate(rows)
    )


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def write_letor(root: Path, train: Sequence[int], test: Sequence[int]) -> None:
    """MQ2008's first fold, of queries with so many documents each."""
    folder = root / "MQ2008" / "Fold1"
    write(folder / "train.txt", text(documents(train, features=46, grades=3)))
    write(folder / "test.txt", text(documents(test, features=46, grades=3, seed=1)))
