"""The copy of a recording in other storage: at any time a recording of the rounds that its journal has."""

import builtins
import json
import logging
import zipfile
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from fedleak.recordings.recording import Recording
from fedleak_recorder import InputError, Recorder
from fedleak_recorder.remote import RemoteCopy, main
from fedleak_recorder.urls import without_secrets

KEY = b"k" * 32
MODEL = {"weight": np.zeros(4, np.float32)}


def recorder(folder: Path, url: str, **options: Any) -> Recorder:
    return Recorder(folder, parameters=MODEL, holds="deltas", key=KEY, copy_to=url, **options)


def sent(number: int) -> dict[str, Any]:
    return {name: ({"weight": np.full(4, number + place, np.float32)}, 5) for place, name in enumerate("ab")}


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_the_copy_is_a_recording_after_every_round(kind: str, tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}" if kind == "memory" else f"file://{tmp_path}/copy"
    with recorder(tmp_path / "own", url) as own:
        for number in range(3):
            own.round(number, MODEL, sent(number))
            RemoteCopy(url).fetch(tmp_path / f"fetched-{number}")
            assert Recording(tmp_path / f"fetched-{number}", running=True).rounds == list(range(number + 1))
    assert main_of(url, tmp_path / "whole") == 0
    assert files(tmp_path / "whole") == {k: v for k, v in files(tmp_path / "own").items() if not k.startswith(".")}
    assert Recording(tmp_path / "whole").closed
    with pytest.raises(InputError, match="storage without a recording"):
        recorder(tmp_path / "other", url)


def main_of(url: str, folder: Path) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["remote", url, str(folder)])
        return main()


def test_a_resumed_recording_replaces_the_rounds_of_its_copy(tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}"
    first = recorder(tmp_path / "own", url)
    for number in range(3):
        first.round(number, MODEL, sent(number))
    first.__exit__(KeyboardInterrupt, None, None)
    with recorder(tmp_path / "own", url, resume_at=1) as second:
        second.round(1, MODEL, sent(10))
    RemoteCopy(url).fetch(tmp_path / "fetched")
    copy = Recording(tmp_path / "fetched")
    assert copy.rounds == [0, 1]
    assert sorted(next(copy.views(rounds=[1])).deltas["weight"][:, 0].tolist()) == [10, 11]


def test_a_failure_is_a_warning_and_the_next_round_copies_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"memory://{tmp_path.name}"
    system = type(fsspec.filesystem("memory"))
    put = system.put_file

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no network")

    own = recorder(tmp_path / "own", url)
    monkeypatch.setattr(system, "put_file", refuse)
    with caplog.at_level(logging.WARNING):
        own.round(0, MODEL, sent(0))
    assert "lacks the last rounds: OSError: no network" in caplog.text
    monkeypatch.setattr(system, "put_file", put)
    own.round(1, MODEL, sent(1))
    RemoteCopy(url).fetch(tmp_path / "fetched")
    assert Recording(tmp_path / "fetched", running=True).rounds == [0, 1]
    monkeypatch.setattr(system, "put_file", refuse)
    with pytest.raises(InputError, match="no network"):
        own.close()
    assert Recording(tmp_path / "own").closed


def test_mistakes_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="a URL of fsspec"):
        recorder(tmp_path / "own", "unknown-protocol://x")
    assert main_of(f"memory://{tmp_path.name}-none", tmp_path / "none") == 2
    real = builtins.__import__
    monkeypatch.setattr(
        "importlib.import_module",
        lambda name: (_ for _ in ()).throw(ImportError(name)) if name == "fsspec" else real(name),
    )
    with pytest.raises(InputError, match=r"fedleak-recorder\[remote\]"):
        recorder(tmp_path / "own", "memory://x")


def a_copy(folder: Path) -> Path:
    """A copy of two rounds in a folder."""
    with recorder(folder / "own", f"file://{folder}/copy") as own:
        for number in range(2):
            own.round(number, MODEL, sent(number))
    return folder / "copy"


def test_names_that_lead_out_of_the_folder_are_left_where_they_are(tmp_path: Path) -> None:
    copy = a_copy(tmp_path)
    with zipfile.ZipFile(tmp_path / "copy.zip", "w") as archive:
        for name, content in files(copy).items():
            archive.writestr(name, content)
        for name in (
            "../outside",
            "rounds/../../outside",
            "/outside",
            "rounds/x",
            "journal.jsonl/x",
            "..\\outside",
            "x",
        ):
            archive.writestr(name, b"outside")
    before = files(tmp_path)
    inside = tmp_path / "a" / "b" / "out"
    assert main_of(f"zip::{tmp_path}/copy.zip", inside) == 0
    made = {str(inside.relative_to(tmp_path) / name) for name in files(copy)}
    assert files(tmp_path).keys() - before.keys() == made


def test_a_store_whose_keys_lead_out_of_the_folder(tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}"
    with recorder(tmp_path / "own", url) as own:
        own.round(0, MODEL, sent(0))
    memory = fsspec.filesystem("memory")
    for key in (f"/{tmp_path.name}/../outside", f"/{tmp_path.name}/rounds/../../outside"):
        memory.store[key] = memory.store[f"/{tmp_path.name}/manifest.json"]
    (tmp_path / "in").mkdir()
    RemoteCopy(url).fetch(tmp_path / "in" / "fetched")
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["fetched"]
    assert not list(tmp_path.rglob("outside"))


@pytest.mark.parametrize(
    "name", ["manifest.json", "journal.jsonl", "rounds/000000-0000.safetensors", "rounds", "truth"]
)
def test_a_link_in_the_storage_is_refused(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    copy = a_copy(tmp_path)
    (copy / name).rename(tmp_path / "elsewhere")
    (copy / name).symlink_to(tmp_path / "elsewhere")
    assert main_of(f"file://{copy}", tmp_path / "fetched") == 2
    assert "not the link" in capsys.readouterr().err
    assert not (tmp_path / "fetched").exists()
    assert not list(tmp_path.glob(".fetched*"))


@pytest.mark.parametrize("change", ["longer", "other", "missing", "journal", "manifest", "no object"])
def test_a_damaged_copy_is_one_line_and_leaves_no_folder(
    tmp_path: Path, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = a_copy(tmp_path)
    shard = copy / "rounds/000001-0000.safetensors"
    content = shard.read_bytes()
    if change == "longer":
        shard.write_bytes(content + b"x")
    elif change == "other":
        shard.write_bytes(content[:-1] + b"x")
    elif change == "missing":
        shard.unlink()
    elif change == "journal":
        (copy / "journal.jsonl").write_text('{"file": "../x", "bytes": 1, "sha256": ""}\n')
    else:
        (copy / "manifest.json").write_text("{" if change == "manifest" else "[]")
    assert main_of(f"file://{copy}", tmp_path / "fetched") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "Traceback" not in said
    assert not (tmp_path / "fetched").exists()


def test_a_copy_without_ground_truth_is_fetched(tmp_path: Path) -> None:
    copy = a_copy(tmp_path)
    for path in (copy / "truth").iterdir():
        path.unlink()
    (copy / "truth").rmdir()
    RemoteCopy(f"file://{copy}").fetch(tmp_path / "fetched")
    assert Recording(tmp_path / "fetched").rounds == [0, 1]


class Killed(BaseException):
    """Stands for a SIGKILL while a file is written."""


def test_a_writer_that_is_killed_anywhere_leaves_a_whole_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storage writes in place; each file that is put, in turn, is cut short, empty or not written at all."""
    system = type(fsspec.filesystem("file"))
    put, left = system.put_file, [0]

    def cut_short(part: float | None) -> Any:
        def put_file(self: Any, local: str, remote: str, **options: Any) -> None:
            left[0] -= 1
            if left[0] >= 0:
                put(self, local, remote, **options)
                return
            if part is not None:
                content = Path(local).read_bytes()
                Path(remote).write_bytes(content[: int(part * len(content))])
            raise Killed

        return put_file

    whole = 0
    for part in (None, 0.0, 0.5, 0.99):
        for number in range(20):
            place = tmp_path / f"{part}-{number}"
            monkeypatch.setattr(system, "put_file", put)
            first = recorder(place / "own", f"file://{place}/copy")
            first.round(0, MODEL, sent(0))
            first.__exit__(KeyboardInterrupt, None, None)
            # The training that goes on has another manifest, e.g. after an update of a package.
            content = json.loads((place / "own/manifest.json").read_text())
            (place / "own/manifest.json").write_text(json.dumps({**content, "versions": {"x": "y" * 9}}))
            second = RemoteCopy(f"file://{place}/copy")
            monkeypatch.setattr(system, "put_file", cut_short(part))
            left[0] = number
            try:
                second.follow(place / "own")
            except Killed:
                left[0] = 10**6
                own, again = Recording(place / "own", running=True), place / "fetched"
                in_one_step = part in (None, 0.99) or (place / "copy/journal.jsonl").stat().st_size
                if in_one_step:  # a journal is read up to its last whole line, here the only one
                    versions = Recording(place / "copy", running=True).manifest.versions
                    assert versions in (content["versions"], own.manifest.versions)
                    RemoteCopy(f"file://{place}/copy").fetch(again)
                    assert json.loads((again / "manifest.json").read_text())["versions"] == versions
                continue
            whole += 1
            assert files(place / "copy") == {k: v for k, v in files(place / "own").items() if not k.startswith(".")}
            break
    assert whole == 4


def test_the_manifest_is_copied_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = type(fsspec.filesystem("file"))
    put, names = system.put_file, list[str]()

    def put_file(self: Any, local: str, remote: str, **options: Any) -> None:
        names.append(Path(remote).name)
        put(self, local, remote, **options)

    monkeypatch.setattr(system, "put_file", put_file)
    a_copy(tmp_path)
    assert names.count("manifest.json") == 1
    assert names.count("journal.jsonl") == 3


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("unknown://me:hunter2hunter2@host/run", "hunter2hunter2"),
        ("unknown://me:hunter2/hun@ter2@host/run?X-Amz-Signature=hunter2hunter2", "hunter2/hun@ter2"),
        ("simplecache::unknown://hunter2hunter2@host/run#hunter2hunter2", "hunter2hunter2"),
        ("https://host/run?sv=1&sig=hunter2%2Bhunter2", "hunter2+hunter2"),
        ("zip://x::unknown://me:hunter2%40hunter2@host/run", "hunter2@hunter2"),
    ],
)
def test_no_message_has_what_gives_access(
    url: str, secret: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(f"login with {secret} refused at {url}")

    def opened(url: str, **options: Any) -> tuple[Any, str]:
        if "https" in url or "::" in url:
            refuse()
        files = fsspec.filesystem("memory")
        return files, f"/{tmp_path.name}"

    monkeypatch.setattr(fsspec, "url_to_fs", opened)
    system = type(fsspec.filesystem("memory"))
    monkeypatch.setattr(system, "put_file", refuse)
    said = []
    try:
        with caplog.at_level(logging.WARNING), recorder(tmp_path / "own", url) as own:
            own.round(0, MODEL, sent(0))
    except InputError as error:
        said.append(str(error))
    said.append(caplog.text)
    monkeypatch.setattr(system, "exists", refuse)
    with pytest.raises(InputError) as caught:
        RemoteCopy(url, client={"password": secret}).fetch(tmp_path / "fetched")
    said.append(str(caught.value))
    assert "***" in " ".join(said)
    assert "hunter2" not in " ".join(said)


@pytest.mark.parametrize("url", ["", 3, b"x", None, {"a": 1}])
def test_what_is_no_url_is_one_line(url: Any) -> None:
    with pytest.raises(InputError) as caught:
        RemoteCopy(url).check_free()
    assert "\n" not in str(caught.value)


def test_a_long_url_is_searched_at_once() -> None:
    assert without_secrets("a" * 10**6) == "a" * 10**6
