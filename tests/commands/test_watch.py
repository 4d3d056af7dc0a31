import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedleak.commands import program
from fedleak.recordings.recording import Recording
from fedleak_recorder.verdict import VERDICT, VerdictFile
from tests.own_signals import takes_signals
from tests.places import ROOT
from tests.watch_toys import KEY, LIMIT, recorder, write_round


@pytest.fixture
def processes() -> Iterator[list["subprocess.Popen[bytes]"]]:
    begun: list[subprocess.Popen[bytes]] = []
    yield begun
    for process in begun:
        process.kill()
        process.communicate()


@pytest.fixture(autouse=True)
def same_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that runs in the process of the tests must not slow down the tests after it."""
    monkeypatch.setattr(os, "nice", lambda _: 0)


def begin(folder: Path, processes: list["subprocess.Popen[bytes]"]) -> "subprocess.Popen[bytes]":
    words = [sys.executable, "attack.py", "watch", str(folder / "deltas"), "--gate", LIMIT]
    path = os.pathsep.join(str(ROOT / name) for name in ("", "recorder", "guard"))
    environment = {**os.environ, "PYTHONPATH": path}
    process = subprocess.Popen(
        words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=takes_signals
    )
    processes.append(process)
    return process


def wait_for(path: Path, number: int) -> None:
    """Until the verdict is on a round."""
    for _ in range(3000):
        if path.exists() and json.loads(path.read_text())["round"] == number:
            return
        time.sleep(0.1)
    raise AssertionError(f"no verdict on round {number}")


@pytest.mark.integration
def test_killed_watch_leaves_the_recording_and_goes_on(
    tmp_path: Path, processes: list["subprocess.Popen[bytes]"]
) -> None:
    path = tmp_path / "watch" / VERDICT
    first = begin(tmp_path, processes)  # before there is a recording
    with recorder(tmp_path / "deltas") as opened:
        write_round(opened, 0)
        wait_for(path, 0)
        first.send_signal(signal.SIGKILL)
        assert first.wait(timeout=300) == -signal.SIGKILL
        write_round(opened, 1)
        verdict = VerdictFile(path, wait_s=0)
        verdict.before(0, KEY)
        assert verdict.before(2, KEY).stop  # the verdict is on round 0
        second = begin(tmp_path, processes)
        wait_for(path, 1)
        assert not verdict.before(2, KEY).stop
        write_round(opened, 2, silent=True)
        wait_for(path, 2)
        assert "findings" in verdict.before(3, KEY).reason
    out, _ = second.communicate(timeout=300)
    assert second.returncode == 3
    assert b"exceeded" in out
    recording = Recording(tmp_path / "deltas")
    assert recording.rounds == [0, 1, 2]
    assert recording.closed


@pytest.mark.integration
def test_sigterm_ends_a_watch_that_waits(tmp_path: Path, processes: list["subprocess.Popen[bytes]"]) -> None:
    process = begin(tmp_path, processes)
    with recorder(tmp_path / "deltas") as opened:
        write_round(opened, 0)
        wait_for(tmp_path / "watch" / VERDICT, 0)
        process.terminate()
        _, said = process.communicate(timeout=300)
    assert process.returncode == 143
    assert b"kept" in said
    assert b"Traceback" not in said


def test_watch_of_a_closed_recording_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with recorder(tmp_path / "deltas") as opened:
        write_round(opened, 0)
    words = ["watch", str(tmp_path / "deltas"), "--gate", LIMIT, "--logger", "csv", "--expected-rounds", "5"]
    assert program.main(words) == 5
    assert "open (release-check)" in capsys.readouterr().out
    (numbers,) = (tmp_path / "watch/csv").glob("*/metrics.csv")
    header = numbers.read_text().splitlines()[0]
    assert "watch/declared-privacy/findings/release-check/value" in header
    assert "watch/exceeded" in header


def test_a_limit_that_no_attack_measures_ends_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with recorder(tmp_path / "deltas") as opened:
        write_round(opened, 0)
    assert program.main(["watch", str(tmp_path / "deltas"), "--gate", "words/f1=0.5"]) == 4
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("words/f1: no attack measured words/f1, because ") for line in lines)
    assert max(map(len, lines)) < 500
    verdict = VerdictFile(tmp_path / "watch" / VERDICT, wait_s=0)
    verdict._first = 0
    assert verdict.before(1, KEY).reason.endswith("no attack has measured a limit")


def test_a_logger_that_fails_does_not_end_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise ConnectionError("no route to the server")

    monkeypatch.setattr("lightning.pytorch.loggers.CSVLogger.log_metrics", failing)
    with recorder(tmp_path / "deltas") as opened:
        write_round(opened, 0)
    assert program.main(["watch", str(tmp_path / "deltas"), "--gate", LIMIT, "--logger", "csv"]) == 5
    assert "CSVLogger gets no more numbers, it failed in round 0: no route to the server" in caplog.text


def test_a_logger_that_does_not_start_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise PermissionError("not here")

    monkeypatch.setattr("fedleak.reports.watch_view.CSVLogger", failing)
    assert program.main(["watch", str(tmp_path / "deltas"), "--gate", LIMIT, "--logger", "csv"]) == 2
    assert "expected a logger csv that takes numbers; found not here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ([], "gate"),
        (["--gate", "epsilon=1"], "bounded"),
        (["--gate", "auc=0.6", "--every", "0"], "--every"),
        (["--gate", "auc=0.6", "--until", "x"], "--until"),
        (["--gate", "auc=0.6", "--logger", "paper"], "--logger"),
        (["--gate", "auc=0.6", "--logger", "mlflow"], "mlflow"),
    ],
)
def test_wrong_option_is_one_line(
    tmp_path: Path, options: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with recorder(tmp_path / "deltas") as opened:
        write_round(opened, 0)
    assert program.main(["watch", str(tmp_path / "deltas"), *options]) == 2
    said = capsys.readouterr().err
    assert word in said
    assert len(said.strip().splitlines()) == 1


def test_damaged_recording_is_one_line_and_leaves_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = recorder(tmp_path / "deltas")
    write_round(opened, 0)
    words = ["watch", str(tmp_path / "deltas"), "--gate", LIMIT]
    assert program.main([*words, "--until", "0"]) == 5
    before = json.loads((tmp_path / "watch" / VERDICT).read_text())
    write_round(opened, 1)
    opened.close()
    shard = tmp_path / "deltas/rounds/000001-0000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-8] + bytes(8))
    assert program.main(words) == 2
    left = json.loads((tmp_path / "watch" / VERDICT).read_text())
    assert {**left, "time": ""} == {**before, "time": ""}  # the second start has written it again
    assert "Traceback" not in capsys.readouterr().err
