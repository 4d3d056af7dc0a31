"""The log: no entry can be changed, removed or half written without being found."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedleak_guard.chained_log import ChainedLog, read_log
from fedleak_recorder.errors import InputError
from tests.places import ROOT


def filled(folder: Path, count: int = 3) -> ChainedLog:
    log = ChainedLog(folder)
    for number in range(count):
        with log.locked():
            log.append({"value": number})
    return log


def test_entries_are_chained_and_read_by_another_process(tmp_path: Path) -> None:
    log = filled(tmp_path)
    other = ChainedLog(tmp_path)
    with other.locked():
        assert [entry["value"] for entry in other.entries] == [0, 1, 2]
        other.append({"value": 3})
    with log.locked():
        assert [entry["value"] for entry in log.entries] == [0, 1, 2, 3]
        assert log.head == other.head
    assert len(read_log(log.path)[0]) == 4


@pytest.mark.parametrize("damage", ["value", "hash", "removed", "swapped", "text", "twice"])
def test_a_damaged_chain_is_refused(tmp_path: Path, damage: str) -> None:
    path = filled(tmp_path).path
    lines = path.read_bytes().splitlines(keepends=True)
    entry = json.loads(lines[1])
    changed = {
        "value": [lines[0], json.dumps({**entry, "value": 9}).encode() + b"\n", lines[2]],
        "hash": [lines[0], json.dumps({**entry, "hash": "0" * 64}).encode() + b"\n", lines[2]],
        "removed": [lines[0], lines[2]],
        "swapped": [lines[1], lines[0], lines[2]],
        "text": [lines[0], b"text\n", lines[2]],
        "twice": [lines[0], lines[0], lines[1]],
    }[damage]
    path.write_bytes(b"".join(changed))
    with pytest.raises(InputError, match="unbroken chain"):
        read_log(path)
    with pytest.raises(InputError, match="unbroken chain"), ChainedLog(tmp_path).locked():
        pass


def test_a_log_that_was_cut_off_while_it_is_used_is_refused(tmp_path: Path) -> None:
    log = filled(tmp_path)
    lines = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(b"".join(lines[:2]))
    with pytest.raises(InputError, match="only grows"), log.locked():
        pass


def test_an_incomplete_last_entry_is_removed_before_the_next(tmp_path: Path) -> None:
    log = filled(tmp_path)
    with log.path.open("ab") as file:
        file.write(b'{"number": 3, "prev')
    entries, torn = read_log(log.path)
    assert (len(entries), torn) == (3, 19)
    again = ChainedLog(tmp_path)
    with again.locked():
        again.append({"value": 3})
    assert (len(read_log(log.path)[0]), read_log(log.path)[1]) == (4, 0)


@pytest.mark.parametrize("failing", ["write", "fsync"])
def test_a_failed_write_leaves_the_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    log, whole, right = filled(tmp_path), (tmp_path / "log.jsonl").read_bytes(), os.write

    def half(descriptor: int, content: bytes) -> int:
        return right(descriptor, content[:7])

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with log.locked(), monkeypatch.context() as patch:
        patch.setattr(os, failing, half if failing == "write" else full)
        with pytest.raises(OSError, match=r"bytes written|No space"):
            log.append({"value": 3})
    assert log.path.read_bytes() == whole
    with log.locked():
        log.append({"value": 3})
    assert len(read_log(log.path)[0]) == 4


@pytest.mark.integration
def test_several_processes_write_one_chain(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from fedleak_guard.chained_log import ChainedLog\n"
        "log = ChainedLog(Path(sys.argv[1]))\n"
        "for number in range(50):\n"
        "    with log.locked(): log.append({'value': number})\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'guard'}:{ROOT / 'recorder'}"}
    command = [sys.executable, "-c", code, str(tmp_path)]
    started = [subprocess.Popen(command, env=environment) for _ in range(4)]
    assert [one.wait(60) for one in started] == [0, 0, 0, 0]
    assert len(read_log(tmp_path / "log.jsonl")[0]) == 200
