"""A disk that is full or closed, a file for a folder, two writers: one line, status 2, and nothing is lost."""

import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fedleak.commands import program
from fedleak_guard import Guard, RefusedError
from fedleak_guard.chained_log import read_log
from fedleak_guard.message import tensors_hash
from fedleak_recorder.format import only_writer
from tests.foreign_toys import write_dump
from tests.fuzz.kills import Digits, Table, damaged, in_process
from tests.guard_toys import log_of, message, write_policy
from tests.toys import train as train_toy

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("without_figures")]

SECONDS = 240.0


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A recording, of which every command may read."""
    train_toy(tmp_path / "toy", rounds=1)
    return tmp_path / "toy/deltas"


def command(name: str, work: Path, recorded: Path) -> Callable[[Path], int]:
    """A command that writes to a folder."""
    if name == "fit":
        return Digits(work / "fit").start
    if name == "reproduce":
        return Table(work / "table").start
    if name == "convert":
        dump = write_dump(work / "dump")
        return lambda out: program.main(["convert", str(dump), "--out", str(out)])
    return lambda out: program.main(["audit", str(recorded), "--out", str(out)])


def one_line(output: str) -> bool:
    """Whether the output ends in the message of a command, and holds no traceback."""
    said = [line for line in output.splitlines() if line.startswith("fedleak: ")]
    return len(said) == 1 and "Traceback" not in output and "expected" in said[0] and "found" in said[0]


COMMANDS = ("fit", "reproduce", "convert", "audit")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_that_may_not_grow(name: str, tmp_path: Path, recorded: Path) -> None:
    """The kernel refuses every file of more than 3,000 bytes, as a quota or a full disk does."""
    start = command(name, tmp_path, recorded)

    def limited() -> int:
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
        return start(tmp_path / "out")

    status, output = in_process(limited, tmp_path / "log", SECONDS)
    assert status == 2, output[-2000:]
    assert one_line(output), output[-2000:]
    assert not list((tmp_path / "out").rglob(".*.tmp"))
    for folder in (tmp_path / "out").rglob("deltas"):
        assert not damaged(folder)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_where_the_folder_must_be(name: str, tmp_path: Path, recorded: Path) -> None:
    out = tmp_path / "out"
    out.write_text("mine")
    start = command(name, tmp_path, recorded)
    status, output = in_process(lambda: start(out), tmp_path / "log", SECONDS)
    assert status == 2, output[-2000:]
    assert one_line(output), output[-2000:]
    assert out.read_text() == "mine"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_system_that_takes_no_folder(name: str, tmp_path: Path, recorded: Path) -> None:
    """As one that is mounted to be read only; nobody, root neither, makes a folder there."""
    start = command(name, tmp_path, recorded)
    status, output = in_process(lambda: start(Path("/proc/self/fedleak")), tmp_path / "log", SECONDS)
    assert status == 2, output[-2000:]
    assert one_line(output), output[-2000:]


@pytest.mark.parametrize("name", ["fit", "reproduce", "convert"])
def test_a_second_writer_is_refused_in_one_line(name: str, tmp_path: Path, recorded: Path) -> None:
    start = command(name, tmp_path, recorded)
    out = tmp_path / "out"
    status, output = in_process(lambda: start(out), tmp_path / "log", SECONDS)
    assert status == 0, output[-2000:]
    held = {"fit": out / "deltas", "convert": out, "reproduce": next(iter(out.glob("trainings/*")), out)}[name]
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    shutil.rmtree(out / "checkpoints", ignore_errors=True)
    marks = ("cells/*.json", "trainings/*/training.json", *(("manifest.json",) if name == "convert" else ()))
    for done in (path for mark in marks for path in out.glob(mark)):
        done.unlink()
    with only_writer(held):
        status, output = in_process(lambda: start(out), tmp_path / "log", SECONDS)
    assert status == 2, output[-2000:]
    assert one_line(output), output[-2000:]
    assert "no other process writes" in output
    kept = {p: p.read_bytes() for p in before if p.is_file()}
    assert {p: before[p] for p in kept if p.suffix == ".safetensors"} == {
        p: content for p, content in kept.items() if p.suffix == ".safetensors"
    }


def test_a_guard_whose_disk_is_full_lets_nothing_out_without_an_entry(tmp_path: Path) -> None:
    """The log and the model of the round before may not grow beyond 30,000 bytes."""
    sent = tmp_path / "sent"
    policy = write_policy(tmp_path, "received: {record: true}\n")

    def limited() -> int:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
        guard, refused = Guard(policy), 0
        for number in range(40):
            try:
                released = guard.release(message(number))
            except RefusedError:
                refused += 1
                continue
            assert released.tensors is not None
            with sent.open("a") as file:
                file.write(f"{tensors_hash(released.tensors)}\n")
        return 0 if refused else 1

    status, output = in_process(limited, tmp_path / "log", SECONDS)
    assert status == 0, output[-2000:]
    entries, torn = read_log(log_of(tmp_path))
    released = {entry["content"] for entry in entries if entry["event"] == "released"}
    assert torn == 0
    left = sent.read_text().splitlines()
    assert left
    assert set(left) <= released
    assert not [*tmp_path.rglob(".*.tmp")]


@pytest.mark.parametrize("folder", ["/proc/self/fedleak", "/dev/null"])
def test_a_guard_without_a_folder_for_its_log_lets_nothing_out(folder: str, tmp_path: Path) -> None:
    """As on a disk that is mounted to be read only."""
    policy = write_policy(tmp_path)
    policy.write_text(policy.read_text().replace(f"{tmp_path}/evidence", folder))
    with pytest.raises(RefusedError):
        Guard(policy).release(message())
