"""Work that engines run in tests: functions of a module, which other processes import, so that it imports little."""

import os
import signal
import time
from pathlib import Path

from fedleak.core.errors import InputError


def doubled(number: int) -> int:
    return 2 * number


def refused(number: int) -> int:
    if number == 2:
        raise InputError(expected="a number but 2", found="2", way_out="Give 3.")
    return number


def where(number: int) -> tuple[int, str, int]:
    """A process, its folder, and the permissions of the files that it makes."""
    return os.getpid(), str(Path.cwd()), os.umask(os.umask(0o077))


def interrupted_once(work: tuple[Path, int]) -> str:
    """A part whose process gets a signal in the first run, and that ends in the second one."""
    mark, number = work
    if mark.exists():
        return "done in a second run"
    mark.touch()
    os.kill(os.getpid(), number)
    time.sleep(60)  # until submitit has requeued it
    return "not interrupted"


def killed(_: int) -> None:
    """A part whose process is always lost."""
    print("about to be lost", file=os.fdopen(2, "w", closefd=False), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def written(work: tuple[Path, int]) -> int:
    """A part that takes its time and keeps its result in a file, which says how often it was computed."""
    folder, number = work
    file = folder / f"{number}.txt"
    if not file.exists():
        (folder / f"{number}.pid").write_text(str(os.getpid()))
        until_allowed(folder, number)
        temporary = file.with_suffix(f".{os.getpid()}")
        temporary.write_text(str(2 * number))
        temporary.replace(file)
    return int(file.read_text())


def until_allowed(folder: Path, number: int) -> None:
    """Part 0 ends at once, the others when a file allows them to."""
    while number > 0 and not (folder / "allowed").exists():
        time.sleep(0.1)
