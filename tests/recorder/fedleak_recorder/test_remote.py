"""The copy of a recording in other storage: at any time a recording of the rounds that its journal has."""

import builtins
import logging
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from fedleak_recorder import InputError, Recorder
from fedleak_recorder.remote import RemoteCopy, main
from recordings.recording import Recording

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
