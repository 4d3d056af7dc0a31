"""A dump that contradicts itself, or asks for more than it holds, is refused in one line before it is converted."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedleak.commands import program
from fedleak.commands.convert import convert_dump
from fedleak.core.errors import InputError
from fedleak.recordings.recording import Recording
from tests.foreign_toys import changed_manifest, content_of, items, rewrite, write_dump
from tests.fuzz.damages import FIELDS, SHAPES, archive, flagged, npy


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """The manifest of a whole dump."""
    return write_dump(tmp_path / "dump")


def change_text(manifest: Path, old: str, new: str) -> None:
    text = manifest.read_text()
    assert old in text
    manifest.write_text(text.replace(old, new, 1))


def refused(manifest: Path, match: str) -> None:
    with pytest.raises(InputError, match=match):
        convert_dump(manifest, manifest.parent.parent / "out", progress=False)
    assert not (manifest.parent.parent / "out/manifest.json").exists()


def laughs() -> str:
    lines = ["  a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"  {chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]" for i in range(10)]
    return "system:\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("new", "match"),
    [
        (laughs(), "values"),
        ("system: &s\n  me: *s\n", "hold themselves"),
        ("system:\n  x: " + "[" * 1000 + "]" * 1000 + "\n", "manifest"),
        ("system:\n  key: !!binary aGVsbG8=\n", "bytes"),
        ("system:\n  key: !!set {a, b}\n", "set"),
        ("system:\n  key: .nan\n", "nan"),
        ("system:\n  1: a\n", "no text"),
        ("system:\n  a: 1\n  a: 2\n", "twice"),
        ("system:\n  a: !!timestamp abc\n", "manifest"),
        ("system:\n  a: " + "9" * 5000 + "\n", "manifest"),
        ("system: !!python/object/apply:os.system ['true']\n", "manifest"),
    ],
)
def test_what_a_manifest_cannot_hold_is_refused_before_the_first_round(manifest: Path, new: str, match: str) -> None:
    change_text(manifest, "system:\n", new)
    refused(manifest, match)
    assert not (manifest.parent.parent / "out").exists()


def test_a_date_is_a_text(manifest: Path, tmp_path: Path) -> None:
    change_text(manifest, "system:\n", "system:\n  date: 2024-05-01\n  other: 2024-13-45\n")
    convert_dump(manifest, tmp_path / "out", progress=False)
    told = Recording(tmp_path / "out").manifest.config["converted_from"]
    assert (told["date"], told["other"]) == ("2024-05-01", "2024-13-45")


HUGE = {"parameters": {"w": [2**33]}, "learner": None, "holds": "deltas"}
"""More numbers than the files can hold."""
OF_A_DUMP: list[tuple[dict[str, Any], str]] = [
    ({"rename": {"output.bias": 5}}, "rename"),
    ({"rename": ["a"]}, "rename"),
    ({"row_parameters": ["output.bias"], "learner": None}, "table"),
    ({"holds": "gradients"}, "gradients"),
    ({"format": 2}, "at most 1 as the manifest.format"),
    ({"secret": 1}, "secret"),
    ({"parameters": {"a": [10**30]}}, "manifest"),
    ({"parameters": {"output.bias": "ten"}}, "ten"),
    ({"rename": {"nowhere": "x"}}, "nowhere"),
    ({"rename": {"output.bias": "output.weight"}}, "names that stand once"),
    ({"releases": [{"clip": "hard"}]}, "releases"),
    ({"releases": [{"parameters": ["nowhere"]}]}, "nowhere"),
    ({"learner": {"name": "mine"}}, "a learner among"),
    ({"auxiliary": "../../etc/passwd"}, "name of a file"),
    ({"auxiliary": "/etc/passwd"}, "name of a file"),
    ({"auxiliary": "."}, "regular"),
    ({"rounds": []}, "rounds"),
    ({"rounds": [1]}, "manifest"),
]
OF_A_ROUND: list[tuple[dict[str, Any], str]] = [
    *(({"round": number}, r"a whole number.*manifest\.rounds\[0\]\.round") for number in ("3", 1.5, True, 10**10)),
    ({"model": 5}, r"a text as the manifest\.rounds\[0\]\.model"),
    ({"model": None}, "global model before round 3"),
    ({"clients": {"a": 1}}, "manifest"),
]
OF_A_CLIENT: list[tuple[dict[str, Any], str]] = [
    ({"file": 5}, r"a text as the manifest\.rounds\[0\]\.clients\[0\]\.file"),
    *(({"file": name}, "name of a file") for name in ("", "a\0b.npz")),
    ({"file": "a" * 300 + ".npz"}, "nothing"),
    ({"file": "phone-1.npz"}, "own"),
    ({"file": None}, "a file of round 3"),
    ({"truth": {}}, "the truth"),
    ({"truth": {"class_counts": [1]}}, "one shape"),
    ({"client": "phone-1"}, "phone-1 again"),
    *(({"client": name}, "client") for name in ([1, 2], None)),
    *(({"examples": number}, r"a whole number.*\.examples") for number in (True, 1.5, 2**63)),
]
OF_EVERY_CLIENT: list[tuple[dict[str, Any], str]] = [
    *(({"truth": truth}, "truth") for truth in (5, {"a": {"b": 1}}, {"a": None}, {"a": [[1], [1, 2]]})),
    *(({"truth": truth}, "plain names") for truth in ({"../x": [1]}, {"offsets": [1]})),
    ({"truth": {"class_counts": [-1] * 10}}, "negative"),
    ({"truth": {"class_counts": [0] * 10}}, "no example"),
    ({"truth": "../dump/auxiliary.npz"}, "name of a file"),
]


def one_field(key: str, value: Any) -> tuple[dict[str, Any], str]:
    return {key: value}, key


@pytest.mark.parametrize(
    ("change", "match"), [*(one_field(key, value) for key in FIELDS for value in FIELDS[key]), *OF_A_DUMP]
)
def test_a_manifest_of_other_kinds_is_refused(manifest: Path, change: dict[str, Any], match: str) -> None:
    refused(changed_manifest(manifest, **change), match)


@pytest.mark.parametrize(
    ("change", "match", "of"),
    [
        *((*case, "round") for case in OF_A_ROUND),
        *((*case, "client") for case in OF_A_CLIENT),
        *((*case, "clients") for case in OF_EVERY_CLIENT),
    ],
)
def test_rounds_and_clients_of_other_kinds_are_refused(
    manifest: Path, change: dict[str, Any], match: str, of: str
) -> None:
    rounds = content_of(manifest)["rounds"]
    clients = rounds[0]["clients"]
    for part in {"round": rounds[:1], "client": clients[:1], "clients": clients}[of]:
        part.update(change)
    refused(changed_manifest(manifest, rounds=rounds), match)


def test_rounds_are_given_each_once(manifest: Path) -> None:
    content = content_of(manifest)
    refused(changed_manifest(manifest, rounds=content["rounds"] * 2), "each once")
    del content["rounds"]
    manifest.write_text(json.dumps(content))
    refused(manifest, "the key rounds")


def test_more_numbers_than_the_files_can_hold_are_refused(manifest: Path) -> None:
    rounds = content_of(manifest)["rounds"]
    rounds[0]["model"] = None
    refused(changed_manifest(manifest, rounds=rounds, **HUGE), "files of round 3")


def test_a_number_that_is_none_is_refused(manifest: Path) -> None:
    rewrite(manifest.parent / "auxiliary.npz", lambda arrays: {**arrays, "images": arrays["images"] * np.nan})
    refused(manifest, "NaN")


WEIGHTS = archive({"output.bias.npy": npy("(100000,)", content=bytes(range(250)) * 1600)})


@pytest.mark.parametrize(
    "content",
    [
        WEIGHTS[:200] + b"\xff" * 60 + WEIGHTS[260:],
        flagged(WEIGHTS),
        flagged(WEIGHTS, method=99),
        flagged(WEIGHTS, method=14),
        *(archive({"output.bias.npy": npy(shape)}) for shape in SHAPES),
        archive({"output.bias.npy": b"\0" * (2**28 + 1)}),
    ],
)
def test_an_archive_that_is_damaged_or_a_bomb_is_refused(manifest: Path, content: bytes) -> None:
    (manifest.parent / "phone-0.npz").write_bytes(content)
    refused(manifest, r"phone-0\.npz")


def test_only_files_of_the_dump_itself_are_opened(manifest: Path, tmp_path: Path) -> None:
    path = manifest.parent / "phone-0.npz"
    path.rename(tmp_path / "elsewhere.npz")
    path.symlink_to(tmp_path / "elsewhere.npz")
    refused(manifest, "name of a file")
    for pipe in (path, manifest):
        pipe.unlink()
        os.mkfifo(pipe)
        refused(manifest, "regular file")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"served": np.array([1.5, 4])}, "whole"),
        ({"served": np.array([1, 1])}, "twice"),
        ({"item_embedding.weight": np.float32(1)}, "item_embedding"),
    ],
)
def test_served_items_are_whole_numbers_with_a_row_each(tmp_path: Path, change: dict[str, Any], match: str) -> None:
    manifest = items(tmp_path, whole=True)
    rewrite(manifest.parent / "a.npz", lambda arrays: {**arrays, **change})
    refused(manifest, match)


def test_labels_are_one_of_each_served_item(tmp_path: Path) -> None:
    manifest = items(tmp_path, whole=True)
    change_text(manifest, '"labels": [1, 0]', '"labels": 1')
    refused(manifest, "each served item")


def test_no_file_is_lost_that_is_not_our_own(manifest: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "journal-of-my-thesis.jsonl").write_text("work of years\n")
    (out / ".manifest.json.tmp").write_text("mine")
    for name in ("journal.jsonl", "auxiliary.safetensors"):
        (out / name).write_text("dear diary\n")
        refused(manifest, "lost")
        assert (out / name).read_text() == "dear diary\n"
        (out / name).unlink()
    convert_dump(manifest, out, progress=False)
    assert (out / "journal-of-my-thesis.jsonl").read_text() == "work of years\n"
    assert (out / ".manifest.json.tmp").read_text() == "mine"
    assert Recording(out).rounds == [3]


def test_what_a_killed_conversion_left_is_removed(manifest: Path, tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = tmp_path / f"out/rounds/.000003-0000.safetensors.{ended.pid}.tmp"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    convert_dump(manifest, tmp_path / "out", progress=False)
    assert not left.exists()


def test_the_command_says_it_in_one_line(manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_text(manifest, "name: synthetic-images", "name: [" + "x, " * 3000 + "x]")
    assert program.main(["convert", str(manifest), "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert len(told) < 3000
