"""Everything that a training, an audit, a watch and a guard write is readable by its owner only, whatever the umask."""

import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedleak.commands import program, train
from fedleak.core.io.download import fetch_once
from fedleak.core.private_files import private_files
from fedleak_guard import Guard, Message
from fedleak_guard.evidence import write_evidence
from fedleak_recorder.files import make_folder, write_once, write_whole
from fedleak_recorder.verdict import VERDICT
from tests.guard_toys import SHAPES, write_policy
from tests.watch_toys import LIMIT, recorder, write_round


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["umask 0", "umask 022", "umask 077"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder that does not exist yet, below one that everybody may read."""
    tmp_path.chmod(0o755)
    before = os.umask(request.param)
    yield tmp_path / "new"
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """Files and folders of other modes than 0600 and 0700."""
    assert folder.is_dir()
    wrong = []
    for path in (folder, *folder.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode != (0o700 if path.is_dir() else 0o600):
            wrong.append(f"{path} {mode:04o}")
    return wrong


@pytest.mark.integration
@pytest.mark.parametrize("folder", [0o000], ids=["umask 0"], indirect=True)  # what it leaves right, any umask does
def test_training_and_audit(folder: Path, without_figures: None) -> None:
    config = ["--config", "configs/train/decaf_digits.yaml", "--trainer.default_root_dir", str(folder)]
    small = ["--trainer.max_steps", "1", "--data.init_args.clients_per_round", "2", "--trainer.accelerator", "cpu"]
    assert train.run(["fit", *config, *small, "--trainer.logger", "CSVLogger"]) == 0
    assert list(folder.rglob("*.ckpt"))
    assert list(folder.glob("deltas/truth/*"))
    assert program.main(["audit", str(folder / "deltas"), "--format", "csv,tex", "--gate", "l1=0.1"]) in (
        3,
        5,
    )
    parts = [
        "audit",
        str(folder / "deltas"),
        "--out",
        str(folder / "parts"),
        "--part",
        "0/2",
        "--jobs",
        "1",
    ]
    assert program.main(parts) == 0
    assert list(folder.rglob("*.estimate"))
    assert open_to_others(folder) == []


def test_recorder_and_watch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "nice", lambda _: 0)
    with recorder(folder / "deltas") as opened:
        for number in range(2):
            write_round(opened, number)
    with recorder(folder / "deltas", resume_at=1) as opened:
        write_round(opened, 1)
    assert program.main(["watch", str(folder / "deltas"), "--gate", LIMIT, "--logger", "csv"]) == 5
    assert open_to_others(folder) == []


def test_verdict_is_read_by_those_who_may_read_its_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "nice", lambda _: 0)
    with recorder(folder / "deltas") as opened:
        write_round(opened, 0)
    watch = folder / "watch"
    watch.mkdir(mode=0o700)
    watch.chmod(0o750)
    assert program.main(["watch", str(folder / "deltas"), "--gate", LIMIT]) == 5
    assert stat.S_IMODE((watch / VERDICT).stat().st_mode) == 0o640
    said = [line for line in capsys.readouterr().err.splitlines() if "other accounts" in line]
    assert len(said) == 1
    assert said[0].endswith(f"for its owner only, except {VERDICT}")
    (watch / VERDICT).chmod(0o600)
    watch.chmod(0o700)
    assert open_to_others(watch) == []


def test_guard(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    policy = write_policy(folder, "received:\n  record: true\n")
    policy.chmod(0o600)
    zeros = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    sent = {name: value + np.float32(0.1) for name, value in zeros.items()}
    Guard(policy).release(Message(job="a", round=1, sent=sent, received=zeros))
    write_evidence(folder / "evidence" / "log.jsonl", 1e-5)
    names = {path.name for path in (folder / "evidence").rglob("*") if path.is_file()}
    assert {"log.jsonl", "egress.json", "attack_results.json"} <= names
    assert any(name.endswith(".npz") for name in names)
    assert open_to_others(folder) == []


def test_file_is_never_open_to_others_while_it_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(folder)
    path = folder / "secret"
    path.write_bytes(b"of an earlier version")
    path.chmod(0o644)
    left = folder / f".secret.{os.getpid()}.tmp"
    left.write_bytes(b"of a killed process")
    left.chmod(0o666)
    modes: list[int] = []
    flush = os.fsync

    def looked(descriptor: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", looked)
    write_whole(path, b"new")
    assert modes[0] == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == b"new"


def test_file_that_somebody_has_put_in_the_way_is_not_followed(folder: Path, tmp_path: Path) -> None:
    make_folder(folder)
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"")
    (folder / f".secret.{os.getpid()}.tmp").symlink_to(theirs)
    write_once(folder / "secret", b"new")
    assert theirs.read_bytes() == b""
    assert not (folder / "secret").is_symlink()


def test_folder_that_others_may_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with recorder(tmp_path / "run" / "deltas") as opened:
        write_round(opened, 0)
    (tmp_path / "my out").mkdir()
    (tmp_path / "my out").chmod(0o755)
    words = [
        "run",
        str(tmp_path / "run/deltas"),
        "--attack",
        "release-check",
        "--out",
        str(tmp_path / "my out"),
    ]
    assert program.main(words) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "other accounts" in line]
    assert shlex.split(line.partition("was there before: ")[2]) == ["chmod", "-R", "go=", str(tmp_path / "my out")]


def test_public_downloads_are_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with private_files():
            fetch_once("data", tmp_path, missing=lambda: True, fetch=lambda: (tmp_path / "data").write_bytes(b"public"))
            (tmp_path / "own").write_bytes(b"mine")
            assert os.umask(0o077) == 0o077
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("data", "own")]
    assert modes == [0o644, 0o600]
