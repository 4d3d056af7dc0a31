"""Files of queries: read as a slow parse reads them, cached, and refused with the line of a fault."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedleak.core.errors import InputError
from fedleak.core.io.array_files import load_arrays, store_arrays
from fedleak.datamodules.ranking import letor_parser as letor_file
from fedleak.datamodules.ranking.letor import LETOR
from fedleak.datamodules.ranking.letor_parser import Queries, read_queries
from fedleak.datamodules.ranking.mslr import MSLR
from tests.datamodules.ranking_files import assert_equal, documents, slowly, text, write
from tests.datamodules.refusals import refused

PAGE = "https://example.org/letor"


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
    "twice": (edited(4, lambda line: line.replace("3:", "2:")), "feature 3 of 4 as 3:VALUE.*line 5"),
    "left out": (edited(4, lambda line: " ".join(line.split(" ")[:3] + line.split(" ")[4:])), "feature 2.*line 5"),
    "out of range": (edited(5, lambda line: line.replace(" #", " 5:0.5 #")), "4 features; found 5 in line 6"),
    "counted from 0": (edited(0, lambda line: line.replace("1:", "0:", 1)), "line 1"),
    "negative feature": (edited(3, lambda line: line.replace(" 1:", " -1:")), "line 4"),
    "nan": (value(6, 2, "nan"), "finite number.*'2:nan' in line 7"),
    "infinity": (value(6, 3, "-inf"), "finite number.*'3:-inf' in line 7"),
    "beyond float32": (value(6, 3, "1e39"), "finite number.*'3:1e39' in line 7"),
    "no value": (value(1, 4, "x"), "'4:x' in line 2"),
    "no colon": (edited(1, lambda line: line.replace("4:", "4")), "4:VALUE.*line 2"),
    "grade too high": (edited(7, lambda line: "3" + line[1:]), "from 0 to 2.*'3' in line 8"),
    "negative grade": (edited(7, lambda line: "-1" + line[1:]), "'-1' in line 8"),
    "half a grade": (edited(7, lambda line: "0.5" + line[1:]), "'0.5' in line 8"),
    "grade nan": (edited(7, lambda line: "nan" + line[1:]), "'nan' in line 8"),
    "no grade": (edited(7, lambda line: line[2:]), "'qid:9986' in line 8"),
    "split query": ("".join([*GOOD, GOOD[0]]), "query 10000 again in line 9"),
    "line cut short": (edited(3, lambda line: line[: line.index("3:")] + "\n"), "4 features.*2 in line 4"),
    "file cut short": ("".join(GOOD)[: -len(GOOD[-1]) + 30], "line break.*line 8"),
    "utf-16": ("".join(GOOD).encode("utf-16"), "xff.*in line 1"),
    "zero bytes": ("".join(GOOD[:2]).encode() + b"\0" * 50 + b"\n", "x00.*in line 3"),
    "latin": ("".join(GOOD[:2]).encode() + GOOD[2].replace("qid", "q\xedd").encode("latin1"), "xed.*in line 3"),
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
    refused(LETOR(root=str(tmp_path), name="MQ2007", fold=2), r"MQ2007/Fold2/train\.txt.*letor-4-0")
    refused(MSLR(root=str(tmp_path), name="MSLR-WEB30K"), r"MSLR-WEB30K/Fold1/train\.txt.*project/mslr")
    for data in (LETOR, MSLR):
        with pytest.raises(InputError, match="fold"):
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
    with pytest.raises(InputError, match="from 0"):
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
