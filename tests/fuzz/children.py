"""Runs tasks in forked children that have four more GiB of memory and some seconds each, and says how each ended.

The seconds are those of the processor, so that a loaded machine makes no hang; a child that waits counts them tenfold.
"""

import json
import os
import resource
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fedleak.core.errors import InputError, ViewError
from tests.places import ROOT

CLEAR, SAME, LEGAL = "clear error", "same numbers", "other legal numbers"
TRACEBACK, HANG, SILENT, MEMORY, SIGNAL = "traceback", "hang", "silent acceptance", "memory above 4 GiB", "signal"
KINDS = (CLEAR, SAME, LEGAL, TRACEBACK, HANG, SILENT, MEMORY, SIGNAL)
FAILURES = (TRACEBACK, HANG, SILENT, MEMORY, SIGNAL)
MEMORY_LIMIT = 4 * 2**30
_WAITING = 10
"""Seconds of the wall for one of the processor."""
_POLL = 0.5


class AcceptedError(AssertionError):
    """Something that a reader took although it cannot be; the message says what."""


@dataclass(frozen=True)
class Answer:
    """How a task ended.

    Attributes:
        kind: one of `KINDS`.
        said: the message of the error, or what was accepted silently.
        where: the project's deepest line in the traceback.
    """

    kind: str
    said: str = ""
    where: str = ""


def answers(tasks: Sequence[Callable[[], Answer]], *, seconds: float = 20.0, batch: int = 60) -> Iterator[Answer]:
    """How each task ended, in order; a child runs several, and another one goes on where it is killed.

    Args:
        tasks: each says itself what an accepted mutant is, or raises.
        seconds: that one may take.
        batch: tasks of a child.
    """
    done = 0
    while done < len(tasks):
        last = min(done + batch, len(tasks))
        for answer in _of_child(tasks[done:last], seconds):
            done += 1
            yield answer


def _of_child(tasks: Sequence[Callable[[], Answer]], seconds: float) -> Iterator[Answer]:
    """The answers of one child until it ends or is killed; then that of the task that it was at."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _work(tasks, writing)
    os.close(writing)
    given, rest = 0, b""
    try:
        while given < len(tasks):
            # A child that waits, e.g. for a lock or a pipe, uses no time of the processor.
            used, ended = _processor_time(child), time.monotonic() + _WAITING * seconds
            while b"\n" not in rest:
                ready, _, _ = select.select([reading], [], [], _POLL)
                part = os.read(reading, 2**16) if ready else None
                hung = _processor_time(child) - used > seconds or time.monotonic() > ended
                if part == b"" or (part is None and hung):
                    yield _killed(child, hung=part is None)
                    return
                rest += part or b""
            line, rest = rest.split(b"\n", 1)
            given += 1
            yield Answer(**json.loads(line))
        os.waitpid(child, 0)
    finally:
        os.close(reading)


def _processor_time(child: int) -> float:
    """Seconds that a process and its ended children have computed, on Linux; 0 for one that has ended."""
    try:
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _killed(child: int, *, hung: bool) -> Answer:
    if hung:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return Answer(HANG) if hung else Answer(SIGNAL, f"status {status}")


def _work(tasks: Sequence[Callable[[], Answer]], writing: int) -> None:
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(quiet, stream)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_LIMIT
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        for task in tasks:
            os.write(writing, json.dumps(asdict(_answer(task))).encode() + b"\n")
    finally:
        os._exit(0)


def _answer(task: Callable[[], Answer]) -> Answer:
    try:
        return task()
    except (InputError, ViewError) as error:
        return Answer(CLEAR, str(error)[:300])
    except AcceptedError as error:
        return Answer(SILENT, str(error)[:300])
    except MemoryError as error:
        return Answer(MEMORY, str(error)[:300], _where(error))
    except BaseException as error:
        kind = MEMORY if "allocate" in str(error) else TRACEBACK
        return Answer(kind, f"{type(error).__name__}: {str(error)[:300]}", _where(error))


def _where(error: BaseException) -> str:
    ours = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(str(ROOT))]
    ours = [f for f in ours if ".venv" not in f.filename and "tests/fuzz" not in f.filename] or ours
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
