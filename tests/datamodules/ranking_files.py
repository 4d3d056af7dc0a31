"""Tiny files in LETOR's real layout."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from fedleak.datamodules.ranking.base import RankingDataModule
from fedleak.datamodules.ranking.letor_parser import Queries

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


def slowly(content: str) -> Queries:
    """One line after the other, in plain Python."""
    grades, queries, features = [], [], []
    for line in content.splitlines():
        fields = line.split("#")[0].split()
        if fields:
            grades.append(int(fields[0]))
            queries.append(int(fields[1].removeprefix("qid:")))
            features.append([float(field.split(":")[1]) for field in fields[2:]])
    starts = [row for row, query in enumerate(queries) if row == 0 or query != queries[row - 1]]
    return Queries(
        np.array(features, np.float32), np.array(grades, np.int64), np.array([*starts, len(queries)], np.int64)
    )


def assert_equal(one: Queries, two: Queries) -> None:
    for name in ("features", "grades", "offsets"):
        value, other = getattr(one, name), getattr(two, name)
        assert value.dtype == other.dtype
        assert np.array_equal(value, other)


def check_cohort(data: RankingDataModule, clients: list[int]) -> None:
    """Every number in a cohort, looked up one at a time."""
    train, groups = data.read_train(), data.client_queries
    cohort = data.build_cohort(3, torch.tensor(clients))
    document, grade, row = cohort.examples["document"], cohort.examples["grade"], cohort.shared["row"]
    chosen = [query for client in clients for query in groups[client].tolist()]
    assert cohort.round == 3
    assert cohort.clients.tolist() == clients
    assert cohort.mask.all()
    assert cohort.mask.shape == (len(clients), data.queries_per_client)
    assert document.shape == grade.shape == (*cohort.mask.shape, max(train.lengths[chosen]))
    assert sorted(row.tolist()) == sorted(
        number for query in chosen for number in range(train.offsets[query], train.offsets[query + 1])
    )
    assert torch.equal(cohort.shared["features"], torch.from_numpy(train.features)[row])
    for query, places, grades in zip(chosen, document.flatten(0, 1), grade.flatten(0, 1), strict=True):
        begin, end = train.offsets[query], train.offsets[query + 1]
        real = places >= 0
        assert row[places[real]].tolist() == list(range(begin, end))
        assert grades[real].tolist() == train.grades[begin:end].tolist()
        assert (places[~real] == -1).all()
        assert (grades[~real] == 0).all()
