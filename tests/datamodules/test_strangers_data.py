"""Data files with numbers that are none, fields that swallow lines, and damaged archives: refused or counted."""

import json
import os
import random
import re
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedleak.core.errors import InputError
from fedleak.core.io.files import MOST_UNPACKED
from fedleak.core.io.tables import TEXT, Unparsable, parse_json_line, read_table
from fedleak.datamodules.devices.blog import _entries, read_blog_csv, read_blog_xml
from fedleak.datamodules.devices.pipa import read_pipa
from fedleak.datamodules.devices.sent140 import read_sent140
from fedleak.datamodules.images.fer import read_fer
from fedleak.datamodules.images.image_files import read_images, trees
from fedleak.datamodules.recommendation.movielens import MovieLens
from fedleak.datamodules.recommendation.steam import Steam
from tests.datamodules import owned_files
from tests.datamodules.image_trees import fer_rows, fer_tree, write_fer_csv, write_zip
from tests.datamodules.ratings_files import LINES, movielens
from tests.datamodules.refusals import refused
from tests.fuzz.damages import flagged


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("19.6\t5\t3\t88", "'19.6' in line 17"),
        ("1\t-5\t3\t88", "'-5' in line 17"),
        ("1\t5\t77\t88", "'77' in line 17"),
        ("1\t5\t1e0\t88", "'1e0' in line 17"),
        ("1\t5\tnan\t88", "'nan' in line 17"),
        ("1e300\t5\t3\t88", "'1e300' in line 17"),
        ("9223372036854775808\t5\t3\t88", "line 17"),
        ("1_0\t5\t3\t88", "'1_0' in line 17"),
        ("\uff11\t5\t3\t88", "line 17"),
        ("1\t5\t3\t88\tx", "line 17|saw 5"),
        ('"1\t5\t3\t88', "line 17"),
        ("1\t5\t3\t" + "8" * 10**6, "line 17"),
    ],
)
def test_a_number_that_is_none_is_refused_with_its_line(tmp_path: Path, line: str, found: str) -> None:
    with pytest.raises(InputError, match=found) as refused:
        movielens(tmp_path, "\n".join([*LINES, line, *LINES[:2]]) + "\n").num_clients  # noqa: B018
    assert len(str(refused.value)) < 3000


def test_identifiers_that_no_float_tells_apart_stay_apart(tmp_path: Path) -> None:
    large = [f"{2**53 + place}\t{item}\t3\t88" for place in (0, 1) for item in (1, 2)]
    assert movielens(tmp_path, "\n".join([*LINES, *large]) + "\n").num_clients == 6


def test_another_file_than_the_published_one_is_read_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    movielens(tmp_path, "\n".join(LINES)).num_clients  # noqa: B018
    assert "is not the published file" in caplog.text
    caplog.clear()
    (tmp_path / "ml-latest-small").mkdir()
    text = "userId,movieId,rating,timestamp\n1,5,4.0,10\n1,6,4.5,11\n2,5,1,12\n2,7,1,13\n"
    (tmp_path / "ml-latest-small/ratings.csv").write_text(text)
    assert MovieLens(root=str(tmp_path), variant="ml-latest-small").num_clients == 2
    assert not caplog.text


@pytest.mark.parametrize(
    "lines",
    [
        '1001,"Half,play,1,0\n1002,Two,play,1,0\n',
        '1001,"Half,play,1,0\n1002,Two,play,1,0\n1003,Three",play,1,0\n',
        '1001,"Ha"lf, play",play,1,0\n',
        "1001,Half,play,1,0,9\n",
        "1001,Half,play,-1,0\n",
    ],
)
def test_a_quotation_mark_swallows_no_lines(tmp_path: Path, lines: str) -> None:
    (tmp_path / "steam-200k").mkdir()
    text = '7,"A, the game",purchase,1.0,0\n7,B,purchase,1.0,0\n9,C,purchase,1.0,0\n'
    (tmp_path / "steam-200k/steam-200k.csv").write_text(text + lines)
    refused(Steam(root=str(tmp_path)), r"line [45]|saw 6")


def test_a_pixel_is_a_plain_number(tmp_path: Path) -> None:
    path = tmp_path / "fer2013/fer2013.csv"
    write_fer_csv(path, fer_rows(per_class=3))
    path.write_text(re.sub(r"^(\d),\d+ ", r"\1,1_0 ", path.read_text(), count=1, flags=re.M))
    with pytest.raises(InputError, match="line 2"):
        read_fer(path)


def test_a_cache_of_another_form_is_made_anew(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "fer2013/fer2013.csv"
    write_fer_csv(path, fer_rows(per_class=3))
    images, labels, _ = read_fer(path)
    (kept,) = cache.glob("*.npz")
    whole = kept.read_bytes()
    other: dict[str, Any] = {"images": np.zeros((2, 1, 5, 5), np.uint8), "labels": np.zeros(3), "training": np.zeros(1)}
    changes: list[Callable[[], object]] = [
        lambda: np.savez(kept, **other),
        lambda: kept.write_bytes(flagged(whole)),
        lambda: kept.write_bytes(b"PK"),
        lambda: os.mkfifo(kept),
        lambda: kept.mkdir(),
    ]
    for change in changes:
        kept.unlink()
        change()
        again = read_fer(path)
        assert torch.equal(again[0], images)
        assert torch.equal(again[1], labels)


@pytest.mark.parametrize("method", [None, 99])
def test_a_zip_file_of_images_that_is_damaged_is_refused(tmp_path: Path, method: int | None) -> None:
    path = tmp_path / "fer2013/fer.zip"
    write_zip(path, fer_tree(per_class=1))
    path.write_bytes(flagged(path.read_bytes(), method=method))
    (_, tree) = trees(tmp_path / "fer2013")
    files = [file for folder in tree.joinpath("train").iterdir() for file in folder.iterdir()]
    with pytest.raises(InputError, match="readable file"):
        read_images(files, (1, 48, 48), resized=False, name="fer")


def test_an_image_is_a_regular_file_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_UNPACKED <= 2**28
    monkeypatch.setattr("fedleak.datamodules.images.image_files.MOST_UNPACKED", 2**16)
    os.mkfifo(tmp_path / "a.jpg")
    with pytest.raises(InputError, match="regular file"):
        read_images([tmp_path / "a.jpg"], (1, 4, 4), resized=True, name="x")
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.jpg", b"\0" * (2**16 + 1))
    (tree,) = [one for one in trees(tmp_path) if one != tmp_path]
    with pytest.raises(InputError, match="more than"):
        read_images([tree.joinpath("a.jpg")], (1, 4, 4), resized=True, name="x")


_OLD_DATE = re.compile(r"<date>(.*?)</date>", re.DOTALL)
_OLD_POST = re.compile(r"\s*<post>((?:(?!<post>|<date>).)*)</post>", re.DOTALL)


def entries_by_expressions(content: str) -> tuple[list[tuple[str, str]], list[int]]:
    found, bad = [], []
    for date in _OLD_DATE.finditer(content):
        post = _OLD_POST.match(content, date.end())
        if post is None:
            bad.append(content.count("\n", 0, date.start()) + 1)
        else:
            found.append((date[1], post[1].strip()))
    return found, bad


def test_posts_are_found_in_one_pass_as_regular_expressions_find_them() -> None:
    draws = random.Random(0)
    parts = ["<date>", "</date>", "<post>", "</post>", "x", "\n", " "]
    for _ in range(3000):
        content = "".join(draws.choices(parts, k=draws.randint(0, 14)))
        unparsable = Unparsable()
        found = list(_entries(content, unparsable))
        expected, bad = entries_by_expressions(content)
        assert (found, unparsable.lines) == (expected, bad[:5]), content


@pytest.mark.parametrize(
    "part", ["<date>", "<date>1</date>", "<date>1</date><post>", "<date>1</date><post></post>\n\n"]
)
def test_hostile_posts_take_no_longer_than_others(tmp_path: Path, part: str) -> None:
    """Expressions that go back took more than forty seconds for two megabytes of these."""
    folder = tmp_path / "blogs"
    folder.mkdir()
    (folder / "11.male.25.indUnk.Aries.xml").write_text(part * (2**19 // len(part)))
    start = time.process_time()
    posts = read_blog_xml(folder, bad_rows="drop")
    assert time.process_time() - start < 1
    assert len(posts.texts) == (2**19 // len(part) if part.endswith("</post>\n\n") else 0)


def test_numbers_of_thousands_of_digits_are_unparsable_rows(tmp_path: Path) -> None:
    owned_files.write_blog_csv(tmp_path, owned_files.posts([11, 12], per_blogger=2))
    path = tmp_path / "blog/blogtext.csv"
    with path.open("a") as file:
        file.write("9" * 5000 + ',male,25,x,Aries,"02,August,2004",hello you there.\n')
    with pytest.raises(InputError, match="1 unparsable"):
        read_blog_csv(path, bad_rows="error")
    owned_files.write_pipa(tmp_path)
    for name, line in (("labels.csv", "100000,cat,1..2\n"), ("authors.csv", "9" * 5000 + ",me\n")):
        before = (tmp_path / "pipa" / name).read_text()
        (tmp_path / "pipa" / name).write_text(before + line)
        with pytest.raises(InputError, match="1 unparsable"):
            read_pipa(tmp_path, least_score=0.5, bad_rows="error")
        (tmp_path / "pipa" / name).write_text(before)


@pytest.mark.parametrize("label", ["Infinity", "NaN", "2", "1.5", "true", "null", "[1]"])
def test_a_label_is_one_of_three(tmp_path: Path, label: str) -> None:
    owned_files.write_sent140(tmp_path, ["a"], per_user=2)
    path = tmp_path / "sent140/all_data.json"
    changed = re.sub(r'"y": \[\d', f'"y": [{label}', path.read_text(), count=1)
    assert changed != path.read_text()
    path.write_text(changed)
    with pytest.raises(InputError, match="1 others"):
        read_sent140(path, bad_rows="error")
    path.write_text("[" * 200000)
    with pytest.raises(InputError, match="LEAF"):
        read_sent140(path, bad_rows="error")


def test_a_first_line_that_is_no_csv_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('"a"b,c\n1,2\n')
    with pytest.raises(InputError, match="first line"):
        read_table(tmp_path / "x.csv", {"c": TEXT}, page="nowhere")


def test_a_line_of_deep_nesting_is_unparsable() -> None:
    assert parse_json_line(b"[" * 200000, lambda value: value) is None
    assert parse_json_line(json.dumps({"a": 1}).encode(), lambda value: value["a"]) == 1
