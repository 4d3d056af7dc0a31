"""A dump that contradicts itself, or asks for more than it holds, is refused in one line before it is converted."""

import io
import os
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import attack
from experiments.commands.convert import convert_dump
from protocol.errors import InputError
from recordings.recording import Recording
from tests.foreign_toys import flagged, items, write_dump

NAN = float("nan")


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
        ("system: &s\n  me: *s\n", "nested"),
        ("system:\n  x: " + "[" * 5000 + "]" * 5000 + "\n", "manifest of a dump"),
        ("system:\n  key: !!binary aGVsbG8=\n", "bytes"),
        ("system:\n  key: !!set {a, b}\n", "set"),
        ("system:\n  key: .nan\n", "nan"),
        ("system:\n  1: a\n", "no text"),
        ("system:\n  a: 1\n  a: 2\n", "twice"),
        ("system:\n  a: !!timestamp abc\n", "manifest of a dump"),
        ("system:\n  a: " + "9" * 100000 + "\n", "manifest of a dump"),
        ("system: !!python/object/apply:os.system ['true']\n", "manifest of a dump"),
    ],
)
def test_what_a_manifest_cannot_hold_is_refused_before_the_first_round(tmp_path: Path, new: str, match: str) -> None:
    manifest = write_dump(tmp_path / "dump")
    change_text(manifest, "system:\n", new)
    refused(manifest, match)
    assert not (tmp_path / "out").exists()


def test_a_date_is_a_text(tmp_path: Path) -> None:
    manifest = write_dump(tmp_path / "dump")
    change_text(manifest, "system:\n", "system:\n  date: 2024-05-01\n  other: 2024-13-45\n")
    convert_dump(manifest, tmp_path / "out", progress=False)
    told = Recording(tmp_path / "out").manifest.config["converted_from"]
    assert (told["date"], told["other"]) == ("2024-05-01", "2024-13-45")


def top(**change: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content.update(change)


def one_round(**change: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["rounds"][0].update(change)


def client(**change: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["rounds"][0]["clients"][0].update(change)


def every(**change: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: [one.update(change) for one in content["rounds"][0]["clients"]]  # type: ignore[return-value]


def huge(content: dict[str, Any]) -> None:
    """More numbers than the files can hold."""
    content.update(parameters={"w": [2**33]}, learner=None, holds="deltas")
    content["rounds"][0]["model"] = None


CASES: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (top(format=True), "format"),
    (top(data="x"), "data"),
    (top(data={"name": None}), "data"),
    (top(parameters=[1, 2]), "parameters"),
    (top(parameters={"output.bias": [True]}), "shape"),
    (top(parameters={"output.bias": [10**30]}), "shape|manifest"),
    (huge, "files of round 3"),
    (top(rename={"output.bias": 5}), "rename"),
    (top(rename=["a"]), "rename"),
    (top(row_parameters=5), "row_parameters"),
    (top(row_parameters=["output.bias"], learner=None), "table"),
    (top(releases=5), "releases"),
    (top(releases=[5]), "releases"),
    (top(releases=[{"noise": 1}]), "releases"),
    (top(releases=[{"noise_scale": -1}]), "releases"),
    (top(releases=[{"clip": 0}]), "releases"),
    (top(releases=[{"parameters": 5}]), "releases"),
    (top(learner="classifier"), "learner"),
    (top(auxiliary=5), "auxiliary"),
    (top(auxiliary="../../etc/passwd"), "name of a file"),
    (top(auxiliary="/etc/passwd"), "name of a file"),
    (top(auxiliary="."), "auxiliary|regular"),
    (client(file=5), "name of a file"),
    (client(file=""), "name of a file"),
    (client(file="a\0b.npz"), "name of a file|manifest"),
    (client(file="a" * 300 + ".npz"), "nothing"),
    (client(file="phone-1.npz"), "file of its own"),
    (client(client=[1, 2]), "client"),
    (client(client=None), "client"),
    (client(examples=True), "number of examples"),
    (client(examples=1.5), "number of examples"),
    (client(examples=2**63), "number of examples"),
    (every(truth=5), "truth"),
    (every(truth={"a": {"b": 1}}), "truth"),
    (every(truth={"a": None}), "truth"),
    (every(truth={"a": [[1], [1, 2]]}), "truth"),
    (every(truth={"../x": [1]}), "plain names"),
    (every(truth={"offsets": [1]}), "plain names"),
    (every(truth={"class_counts": [-1] * 10}), "negative"),
    (every(truth={"class_counts": [0] * 10}), "no example"),
    (every(truth="../dump/auxiliary.npz"), "name of a file"),
    (one_round(round="3"), "round's number"),
    (one_round(round=1.5), "round's number"),
    (one_round(round=True), "round's number"),
    (one_round(round=10**10), "round's number"),
    (one_round(model=5), "name of a file"),
    (one_round(clients={"a": 1}), "manifest of a dump"),
    (top(rounds=[]), "rounds"),
    (top(rounds=[1]), "manifest of a dump"),
]


@pytest.mark.parametrize(("change", "match"), CASES)
def test_a_manifest_of_other_kinds_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], match: str
) -> None:
    manifest = write_dump(tmp_path / "dump")
    content = yaml.safe_load(manifest.read_text())
    change(content)
    manifest.write_text(yaml.safe_dump(content, sort_keys=False))
    refused(manifest, match)


def test_a_number_that_is_none_is_refused(tmp_path: Path) -> None:
    manifest = write_dump(tmp_path / "dump")
    with np.load(tmp_path / "dump/auxiliary.npz") as file:
        arrays: dict[str, Any] = {name: file[name] for name in file.files}
    np.savez(tmp_path / "dump/auxiliary.npz", **(arrays | {"images": arrays["images"] * NAN}))
    refused(manifest, "NaN")


def npy(shape: str) -> bytes:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}".encode()
    header += b" " * (64 - (len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


def archive(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as made:
        for name, content in members.items():
            made.writestr(name, content)
    return file.getvalue()


def damaged_stream(content: bytes) -> bytes:
    return content[:200] + b"\xff" * 60 + content[260:]


WEIGHTS = archive({"output.bias.npy": npy("(100000,)") + bytes(range(250)) * 1600})


@pytest.mark.parametrize(
    "content",
    [
        damaged_stream(WEIGHTS),
        flagged(WEIGHTS),
        flagged(WEIGHTS, method=99),
        flagged(WEIGHTS, method=14),
        archive({"output.bias.npy": npy("(1000000000000,)") + b"\0" * 100}),
        archive({"output.bias.npy": npy("(" + "1," * 5000 + ")")}),
        archive({"output.bias.npy": npy("(-1,)") + b"\0" * 100}),
        archive({"output.bias.npy": npy("(True,)") + b"\0" * 100}),
        archive({"output.bias.npy": b"\0" * (2**28 + 1)}),
    ],
)
def test_an_archive_that_is_damaged_or_a_bomb_is_refused(tmp_path: Path, content: bytes) -> None:
    manifest = write_dump(tmp_path / "dump")
    (tmp_path / "dump/phone-0.npz").write_bytes(content)
    refused(manifest, r"arrays of numbers in phone-0\.npz")


def test_only_files_of_the_dump_itself_are_opened(tmp_path: Path) -> None:
    manifest = write_dump(tmp_path / "dump")
    path = tmp_path / "dump/phone-0.npz"
    path.rename(tmp_path / "elsewhere.npz")
    path.symlink_to(tmp_path / "elsewhere.npz")
    refused(manifest, "name of a file")
    path.unlink()
    os.mkfifo(path)
    refused(manifest, "regular file")
    manifest.unlink()
    os.mkfifo(manifest)
    refused(manifest, "regular file")


def test_served_items_are_whole_numbers(tmp_path: Path) -> None:
    manifest = items(tmp_path, whole=True)
    with np.load(manifest.parent / "a.npz") as file:
        arrays: dict[str, Any] = {name: file[name] for name in file.files}
    np.savez(manifest.parent / "a.npz", **(arrays | {"served": np.array([1.5, 4])}))
    refused(manifest, "whole numbers")
    np.savez(manifest.parent / "a.npz", **(arrays | {"served": np.array([1, 1])}))
    refused(manifest, "twice")
    np.savez(manifest.parent / "a.npz", **arrays)
    text = manifest.read_text()
    manifest.write_text(text.replace('"labels": [1, 0]', '"labels": 1'))
    refused(manifest, "one of each served item")
    manifest.write_text(text)
    np.savez(manifest.parent / "a.npz", **(arrays | {"item_embedding.weight": np.float32(1)}))
    refused(manifest, "item_embedding")


def test_no_file_is_lost_that_is_not_our_own(tmp_path: Path) -> None:
    manifest = write_dump(tmp_path / "dump")
    out = tmp_path / "out"
    out.mkdir()
    (out / "journal-of-my-thesis.jsonl").write_text("work of years\n")
    (out / ".manifest.json.tmp").write_text("mine")
    (out / "journal.jsonl").write_text("dear diary\n")
    refused(manifest, "would be lost")
    assert (out / "journal.jsonl").read_text() == "dear diary\n"
    (out / "journal.jsonl").unlink()
    (out / "auxiliary.safetensors").write_text("mine")
    refused(manifest, "would be lost")
    (out / "auxiliary.safetensors").unlink()
    convert_dump(manifest, out, progress=False)
    assert (out / "journal-of-my-thesis.jsonl").read_text() == "work of years\n"
    assert (out / ".manifest.json.tmp").read_text() == "mine"
    assert Recording(out).rounds == [3]


def test_what_a_killed_conversion_left_is_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    rounds = tmp_path / "out/rounds"
    rounds.mkdir(parents=True)
    left = rounds / f".000003-0000.safetensors.{ended.pid}.tmp"
    written = rounds / f".000003-0000.safetensors.{os.getpid()}.tmp"
    for path in (left, written):
        path.write_bytes(b"half")
    convert_dump(write_dump(tmp_path / "dump"), tmp_path / "out", progress=False)
    assert not left.exists()


@pytest.mark.integration
def test_the_command_says_it_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = write_dump(tmp_path / "dump")
    change_text(manifest, "name: synthetic-images", "name: [" + "x, " * 100000 + "x]")
    assert attack.main(["convert", "--manifest", str(manifest), "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert len(told) < 3000
