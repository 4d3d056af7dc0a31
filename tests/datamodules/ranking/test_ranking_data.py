"""LETOR files in their real layout, every way in which one can be broken, and the clients made of them."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from datamodules.io.array_cache import load_arrays, store_arrays
from datamodules.ranking import letor_parser as letor_file
from datamodules.ranking.base import RankingDataModule
from datamodules.ranking.letor import LETOR
from datamodules.ranking.letor_parser import Queries, read_queries
from datamodules.ranking.mslr import MSLR
from datamodules.ranking.standardise import column_statistics, standardise_
from datamodules.ranking.synthetic_ranking import SyntheticRanking
from protocol.errors import InputError
from tests.datamodules.ranking_files import documents, text, write, write_letor

REAL = Path(os.environ.get("FEDLEAK_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
PAGE = "https://example.org/letor"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FEDLEAK_CACHE", str(folder))
    return folder


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


def read(path: Path, features: int = 4) -> Queries:
    return read_queries(path, num_features=features, max_grade=2, page=PAGE)


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("chunk", [1, 100, 2**22])
def test_a_file_is_read_as_a_slow_parse_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, chunk: int
) -> None:
    monkeypatch.setattr(letor_file, "_CHUNK_BYTES", chunk)
    whole = text(documents([3, 1, 5, 2], features=4, grades=3), end=end)
    lines = whole.splitlines(keepends=True)
    # Lines without data, also where a chunk ends.
    content = "".join(
        ["# made by hand" + end, *lines[:2], end, *lines[2:6], "# more" + end, "# and more" + end, *lines[6:]]
    )
    queries = read(write(tmp_path / "train.txt", content))
    assert_equal(queries, slowly(content))
    assert queries.lengths.tolist() == [3, 1, 5, 2]


GOOD = text(documents([3, 2, 3], features=4, grades=3)).splitlines(keepends=True)


def edited(row: int, change: Callable[[str], str]) -> str:
    return "".join([*GOOD[:row], change(GOOD[row]), *GOOD[row + 1 :]])


def value(row: int, number: int, new: str) -> str:
    def change(line: str) -> str:
        fields = line.split(" ")
        fields[number + 1] = f"{number}:{new}"
        return " ".join(fields)

    return edited(row, change)


BROKEN: dict[str, tuple[str | bytes, str]] = {
    "no qid": (edited(2, lambda line: line.replace("qid:10000 ", "")), "the query as qid:NUMBER.*line 3"),
    "no number of a query": (edited(1, lambda line: line.replace("10000", "ten")), "qid:ten.*line 2"),
    "huge number of a query": (edited(1, lambda line: line.replace("10000", "1" * 30)), "qid:111.*line 2"),
    "out of order": (
        edited(4, lambda line: line.replace("2:", "x:").replace("3:", "2:").replace("x:", "3:")),
        "line 5",
    ),
    "twice": (edited(4, lambda line: line.replace("3:", "2:")), "feature 3, for all.*line 5"),
    "left out": (edited(4, lambda line: " ".join(line.split(" ")[:3] + line.split(" ")[4:])), "feature 2.*line 5"),
    "out of range": (edited(5, lambda line: line.replace(" #", " 5:0.5 #")), "from 1 to 4.*'5:0.5' in line 6"),
    "counted from 0": (edited(0, lambda line: line.replace("1:", "0:", 1)), "line 1"),
    "negative feature": (edited(3, lambda line: line.replace(" 1:", " -1:")), "line 4"),
    "nan": (value(6, 2, "nan"), "finite number.*'2:nan' in line 7"),
    "infinity": (value(6, 3, "-inf"), "finite number.*'3:-inf' in line 7"),
    "beyond float32": (value(6, 3, "1e39"), "finite number.*'3:1e39' in line 7"),
    "no value": (value(1, 4, "x"), "'4:x' in line 2"),
    "no colon": (edited(1, lambda line: line.replace("4:", "4")), "INDEX:VALUE.*line 2"),
    "grade too high": (edited(7, lambda line: "3" + line[1:]), "from 0 to 2.*'3' in line 8"),
    "negative grade": (edited(7, lambda line: "-1" + line[1:]), "'-1' in line 8"),
    "half a grade": (edited(7, lambda line: "0.5" + line[1:]), "'0.5' in line 8"),
    "grade nan": (edited(7, lambda line: "nan" + line[1:]), "'nan' in line 8"),
    "no grade": (edited(7, lambda line: line[2:]), "'qid:9986' in line 8"),
    "split query": ("".join([*GOOD, GOOD[0]]), "query 10000 again in line 9"),
    "line cut short": (edited(3, lambda line: line[: line.index("3:")] + "\n"), "4 features.*2 in line 4"),
    "file cut short": ("".join(GOOD)[: -len(GOOD[-1]) + 30], "line break.*line 8"),
    "utf-16": ("".join(GOOD).encode("utf-16"), "0xff in line 1"),
    "zero bytes": ("".join(GOOD[:2]).encode() + b"\0" * 50 + b"\n", "0x00 in line 3"),
    "latin": ("".join(GOOD[:2]).encode() + GOOD[2].replace("qid", "q\xedd").encode("latin1"), "0xed in line 3"),
}


@pytest.mark.parametrize("chunk", [1, 250, 2**22])
@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_file_is_refused_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, chunk: int
) -> None:
    monkeypatch.setattr(letor_file, "_CHUNK_BYTES", chunk)
    content, found = BROKEN[fault]
    path = write(tmp_path / "train.txt", content)
    with pytest.raises(InputError, match=found) as caught:
        read(path)
    assert str(path) in caught.value.found


@pytest.mark.parametrize("content", ["", "\n\n\n", "# only this\n"], ids=["nothing", "line breaks", "comment"])
def test_an_empty_file_is_refused(tmp_path: Path, content: str) -> None:
    path = write(tmp_path / "train.txt", content)
    with pytest.raises(InputError, match="empty") as caught:
        read(path)
    assert str(path) in caught.value.found


def test_what_is_missing_is_named_with_its_page(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"MQ2007/Fold2/train\.txt.*letor-4-0"):
        LETOR(root=str(tmp_path), name="MQ2007", fold=2).num_clients  # noqa: B018
    with pytest.raises(InputError, match=r"MSLR-WEB30K/Fold1/train\.txt.*project/mslr"):
        MSLR(root=str(tmp_path), name="MSLR-WEB30K").num_clients  # noqa: B018
    for data in (LETOR, MSLR):
        with pytest.raises(InputError, match="fold from 1 to 5"):
            data(root=str(tmp_path), fold=6)


def test_the_cache_answers_like_the_file_and_notices_a_change(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "train.txt", "".join(GOOD))
    fresh = read(path)
    with monkeypatch.context() as patch:
        patch.setattr(letor_file, "_parse", None)
        assert_equal(read(path), fresh)
    changed = value(2, 1, "0.125")
    write(path, changed)
    assert_equal(read(path), slowly(changed))
    assert len(list(cache.iterdir())) == 2
    # What is allowed in a file is part of the key: grade 2 is refused, though the file is in the cache.
    with pytest.raises(InputError, match="from 0 to 1"):
        read_queries(path, num_features=4, max_grade=1, page=PAGE)


def test_a_damaged_cache_is_made_anew(tmp_path: Path, cache: Path) -> None:
    path = write(tmp_path / "train.txt", "".join(GOOD))
    fresh = read(path)
    kept = next(cache.iterdir())
    whole = bytearray(kept.read_bytes())
    at = whole.index(fresh.features.tobytes())
    whole[at] ^= 1
    for damaged in (bytes(whole), bytes(whole[:200]), b"", b"no zip file"):
        kept.write_bytes(damaged)
        assert_equal(read(path), fresh)


def test_without_a_cache_the_file_is_read_all_the_same(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDLEAK_CACHE", str(write(tmp_path / "a file", "") / "below"))
    store_arrays("key", {"one": np.ones(1)})
    assert load_arrays("key") is None
    assert_equal(read(write(tmp_path / "train.txt", "".join(GOOD))), slowly("".join(GOOD)))
    assert not list(cache.iterdir())


LENGTHS = [4, 1, 6, 2, 3, 1, 5, 9, 2, 7, 3]


def letor(root: Path, **arguments: int) -> LETOR:
    write_letor(root, LENGTHS, [3, 1, 8])
    return LETOR(root=str(root), **({"queries_per_client": 2} | arguments))  # type: ignore[arg-type]


def test_clients_are_disjoint_groups_of_queries_with_more_than_one_document(tmp_path: Path) -> None:
    data = letor(tmp_path)
    groups = data.client_queries()
    # 11 queries, 2 of them with one document, of which 4 pairs can be made.
    assert groups.shape == (data.num_clients, 2) == (4, 2)
    assert len(set(groups.flatten().tolist())) == 8
    assert all(LENGTHS[query] > 1 for query in groups.flatten().tolist())
    assert torch.equal(groups, letor(tmp_path).client_queries())
    assert not torch.equal(groups, letor(tmp_path, seed=1).client_queries())


def test_a_dropped_query_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        letor(tmp_path).num_clients  # noqa: B018
    assert "2 of 11 queries have one document" in caplog.text


@pytest.mark.parametrize("count", [0, 10])
def test_an_impossible_number_of_queries_is_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(InputError, match="queries_per_client"):
        letor(tmp_path, queries_per_client=count).num_clients  # noqa: B018


def test_the_queries_are_dealt_out_until_there_are_enough_users(tmp_path: Path) -> None:
    data = letor(tmp_path, users=9)
    # 4 clients a round, so 3 rounds; nobody is in two of them, and each deals out the same queries anew.
    assert (data.rounds, data.num_clients) == (3, 12)
    assert [data.participants(number).tolist() for number in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    deals = data.client_queries().reshape(3, 8)
    assert not torch.equal(deals[0], deals[1])
    assert torch.equal(deals[0].reshape(4, 2), letor(tmp_path).client_queries())
    assert letor(tmp_path).rounds is None
    assert letor(tmp_path, users=9, clients_per_round=2).rounds == 5


@pytest.mark.parametrize(("options", "rounds", "clients"), [({}, 3, 3), ({"targets": 2}, 5, 3), ({"targets": 1}, 9, 3)])
def test_a_round_has_whole_aggregates_of_which_the_targets_are_users(
    tmp_path: Path, options: dict[str, int], rounds: int, clients: int
) -> None:
    data = letor(tmp_path, users=9, aggregate=3, **options)
    assert data.rounds == rounds
    assert {len(data.participants(number)) for number in range(rounds)} == {clients}


def test_impossible_aggregates_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at most 4 clients in an aggregate"):
        letor(tmp_path, aggregate=5).cohort(0)
    with pytest.raises(InputError, match="at most 2 targets"):
        letor(tmp_path, aggregate=2, targets=3)


def check_cohort(data: RankingDataModule, clients: list[int]) -> None:
    """Every number in a cohort, looked up one at a time."""
    train, groups = data.read_train(), data.client_queries()
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


def test_a_cohort_holds_its_clients_documents(tmp_path: Path) -> None:
    data = letor(tmp_path)
    check_cohort(data, [2])
    check_cohort(data, [3, 0])
    check_cohort(data, [0, 1, 2, 3])


def test_clients_chosen_from_a_cohort_find_their_documents(tmp_path: Path) -> None:
    cohort = letor(tmp_path).cohort(0)
    part = cohort.share(1, 2)
    assert part.clients.tolist() == [1, 3]
    assert part.shared is cohort.shared
    assert torch.equal(part.examples["document"], cohort.examples["document"][[1, 3]])


def test_a_query_of_a_thousand_documents_is_kept_whole() -> None:
    data = SyntheticRanking(queries=3, test_queries=1, fewest_documents=1000, most_documents=1000, queries_per_client=3)
    assert data.cohort(0).examples["document"].shape == (1, 3, 1000)
    check_cohort(data, [0])


def test_test_queries_come_padded_in_their_order(tmp_path: Path) -> None:
    data = letor(tmp_path)
    test = data.read_test()
    (batch,) = data.val_dataloader()
    assert batch["features"].shape == (3, 8, 46)
    assert batch["mask"].sum(1).tolist() == [3, 1, 8]
    assert torch.equal(batch["features"][batch["mask"]], torch.from_numpy(test.features))
    assert torch.equal(batch["grade"][batch["mask"]], torch.from_numpy(test.grades))
    assert not batch["features"][~batch["mask"]].any()
    assert not batch["grade"][~batch["mask"]].any()


def test_letor_is_read_raw_and_named_by_its_hash(tmp_path: Path) -> None:
    data = letor(tmp_path)
    assert_equal(data.read_train(), slowly((tmp_path / "MQ2008/Fold1/train.txt").read_text()))
    assert (data.num_features, data.num_grades) == (46, 3)
    assert data.fingerprint["name"] == "MQ2008"
    assert len(data.fingerprint["sha256"]) == 64


def test_mslr_is_standardised_by_its_training_documents(tmp_path: Path) -> None:
    train, test = (documents([5, 9, 4], features=136, grades=5, seed=seed) for seed in (0, 1))
    for _, _, values in train:
        values[7] = 0.1
        values[8] = 1e6 + 3 * values[8]
    folder = tmp_path / "MSLR-WEB10K" / "Fold1"
    write(folder / "train.txt", text(train, comment=False, end="\r\n"))
    write(folder / "test.txt", text(test, comment=False))
    data = MSLR(root=str(tmp_path), queries_per_client=3)
    raw, raw_test = (
        np.array([values for *_, values in rows]).astype(np.float32).astype(float) for rows in (train, test)
    )
    mean, std = raw.mean(0), raw.std(0)
    std[7] = np.inf
    # read_test first: it must find the training statistics by itself.
    assert np.allclose(data.read_test().features, (raw_test - mean) / std, rtol=1e-5, atol=1e-6)
    assert np.allclose(data.read_train().features, (raw - mean) / std, rtol=1e-5, atol=1e-6)
    assert (data.read_train().features[:, 7] == 0).all()
    assert (data.read_test().features[:, 7] == 0).all()
    assert (data.num_features, data.num_grades, data.num_clients) == (136, 5, 1)
    check_cohort(data, [0])


def test_statistics_over_many_rows_equal_those_of_numpy() -> None:
    features = np.random.default_rng(0).normal(5.0, 2.0, size=(40_000, 3)).astype(np.float32)
    statistics = column_statistics(features)
    assert np.allclose(statistics.mean, features.astype(float).mean(0), rtol=1e-12)
    assert np.allclose(statistics.std, features.astype(float).std(0), rtol=1e-12)
    standardise_(features, statistics)
    assert np.allclose(features.mean(0, dtype=float), 0, atol=1e-6)
    assert np.allclose(features.std(0, dtype=float), 1, atol=1e-6)


@pytest.mark.parametrize(("shape", "features", "grades"), [("mslr", 136, 5), ("letor", 46, 3)])
def test_the_generated_set_has_the_shape_and_a_linear_relation(shape: str, features: int, grades: int) -> None:
    data = SyntheticRanking(shape=shape)  # type: ignore[arg-type]
    train, test = data.read_train(), data.read_test()
    assert (data.num_features, data.num_grades, data.num_clients) == (features, grades, 75)
    assert train.features.shape == (train.offsets[-1], features)
    assert train.lengths.min() >= 8
    assert 190 <= train.lengths.max() <= 200
    assert np.unique(train.grades).tolist() == list(range(grades))
    # A linear fit on the training queries ranks the test queries' documents.
    weights = np.linalg.lstsq(train.features - train.features.mean(0), train.grades - train.grades.mean())[0]
    assert np.corrcoef(test.features @ weights, test.grades)[0, 1] > 0.5
    assert data.fingerprint == SyntheticRanking(shape=shape).fingerprint  # type: ignore[arg-type]
    assert data.fingerprint != SyntheticRanking(shape=shape, seed=1).fingerprint  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [{"fewest_documents": 9, "most_documents": 8}, {"queries": 0}])
def test_an_impossible_generated_set_is_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(InputError, match=next(iter(arguments))):
        SyntheticRanking(**arguments)  # type: ignore[arg-type]


@pytest.mark.skipif(not (REAL / "MQ2008").is_dir(), reason="the real data are not here")
def test_the_real_set_has_its_published_size() -> None:
    data = LETOR(root=str(REAL), name="MQ2008")
    train, test = data.read_train(), data.read_test()
    assert (train.num_queries, len(train.grades), test.num_queries) == (471, 9630, 156)
    assert_equal(train, slowly((REAL / "MQ2008" / "Fold1" / "train.txt").read_text()))
    check_cohort(data, list(range(0, data.num_clients, 10)))
