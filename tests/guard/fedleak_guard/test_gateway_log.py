"""The log of a gateway's refused calls: bounded, a chain, and checked by the command."""

import json
import logging
import threading
from pathlib import Path

import pytest

from fedleak_guard.chained_log import read_log
from fedleak_guard.command import main
from fedleak_guard.gateway_log import GATEWAY_LOG, GatewayLog
from fedleak_recorder.errors import InputError


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def entries(folder: Path) -> list[dict[str, object]]:
    return read_log(folder / GATEWAY_LOG)[0]


def test_the_first_refused_call_is_written_at_once_and_then_counts_once_a_minute(tmp_path: Path) -> None:
    clock = Clock()
    log = GatewayLog(tmp_path, clock)
    for _ in range(3):
        log.count("no signature")
        log.write_due()
    assert [entry["refused"] for entry in entries(tmp_path)] == [{"no signature": 1}]
    clock.now += 61
    log.count("no call")
    log.write_due()
    log.write_due()
    assert entries(tmp_path)[1]["refused"] == {"no call": 1, "no signature": 2}
    assert len(entries(tmp_path)) == 2


def test_a_clock_that_goes_back_does_not_stop_the_log(tmp_path: Path) -> None:
    clock = Clock()
    log = GatewayLog(tmp_path, clock)
    log.count("no call")
    log.write_due()
    clock.now -= 500
    log.count("no call")
    log.write_due()
    assert len(entries(tmp_path)) == 2


def test_nothing_is_written_of_nothing(tmp_path: Path) -> None:
    GatewayLog(tmp_path, Clock()).write_due()
    assert not (tmp_path / GATEWAY_LOG).exists()


def test_counts_of_threads_are_all_there(tmp_path: Path) -> None:
    log = GatewayLog(tmp_path, Clock())

    def count() -> None:
        for _ in range(200):
            log.count("no call")

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.write_due()
    assert entries(tmp_path)[0]["refused"] == {"no call": 1600}


def test_what_could_not_be_written_is_kept_and_written_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = GatewayLog(tmp_path / "evidence", Clock())
    (tmp_path / "evidence").write_text("no folder")
    log.count("no call")
    with pytest.raises(OSError, match="evidence"):
        log.write_due()
    (tmp_path / "evidence").unlink()
    with caplog.at_level(logging.ERROR):
        log.write_due()
    assert entries(tmp_path / "evidence")[0]["refused"] == {"no call": 1}
    assert caplog.text.count("refused calls") == 1


def test_verify_sums_the_counts_of_a_whole_chain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    log = GatewayLog(tmp_path, clock)
    log.note("started", pace=3.0)
    for _ in range(2):
        log.count("no signature")
        log.count("no call")
        log.write_due()
        clock.now += 60
    path = tmp_path / GATEWAY_LOG
    assert main(["verify", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "3 entries in an unbroken chain" in printed
    assert "4 calls refused" in printed
    assert "  no signature: 2" in printed
    assert main(["verify", str(path), "--head", "0" * 63 + "1"]) == 2
    lines = path.read_text().splitlines()
    changed = {**json.loads(lines[1]), "refused": {}}
    path.write_text("\n".join([lines[0], json.dumps(changed), *lines[2:], ""]))
    assert main(["verify", str(path)]) == 2
    assert "that was changed" in capsys.readouterr().err
    with pytest.raises(InputError):
        GatewayLog(tmp_path, clock).note("started")
