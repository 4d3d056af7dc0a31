"""Work that engines run in tests: functions of a module, which other processes import."""

import dataclasses
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pandas as pd

from fedleak.attacks.interactions.baselines import Popularity
from fedleak.attacks.linkability.similarity import Linkability
from fedleak.attacks.recommendation.item_deltas import Direction, RowNorm
from fedleak.core.errors import InputError
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.auditing import run_audit
from fedleak.evaluation.engines.engine import Engine, Part, Result
from fedleak.recordings.recording import Recording


@dataclasses.dataclass(frozen=True, kw_only=True)
class Backwards(Engine):
    """An engine of somebody else, named by its class path."""

    name = "backwards"
    times: int = 1

    def run(self, function: Callable[[Part], Result], work: Sequence[Part]) -> Iterator[Result]:
        results = [function(part) for part in reversed(work)]
        yield from reversed(results * self.times)


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


def audited(folder: Path, engine: Engine | None) -> pd.DataFrame:
    """Scores of an audit by an engine, or by this process."""
    attacks = [RowNorm(), Direction(), Popularity(), Linkability()]
    plan = AuditPlan(recording=Recording(folder), attacks=attacks, describe=False)
    return run_audit(plan, engine=engine, progress=False).scores.drop(columns="seconds")


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
