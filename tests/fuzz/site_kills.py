"""What is killed at a site and beside a server: a guard of two processes, a watch, a recorder's copy, an audit.

Each is a subject of `tests.fuzz.kills`; nothing of it may be lost, and nothing may leave without an entry.
"""

import contextlib
import hashlib
import json
import multiprocessing
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from fedleak.commands import program
from fedleak.recordings.complete_rounds import complete_rounds
from fedleak.recordings.recording import Recording
from fedleak_guard import Guard, Message
from fedleak_guard.chained_log import read_log
from fedleak_guard.message import tensors_hash
from fedleak_recorder import Recorder
from fedleak_recorder.errors import InputError
from tests import guard_toys, watch_toys
from tests.foreign_toys import write_dump
from tests.fuzz.kills import Subject, damaged


class GuardOfTwo(Subject):
    """Two processes that send messages through the guard of one site, which keeps the models that it received."""

    name = "guard, two processes on one log"
    share = 0.2
    messages = 60
    """That each process sends in all, over its kills."""

    def start(self, out: Path) -> int:
        """Each process sends what it has not sent yet."""
        out.mkdir(parents=True, exist_ok=True)
        policy = guard_toys.write_policy(out, "received: {record: true}\n")
        children = [multiprocessing.Process(target=self._send, args=(out, policy, number)) for number in range(2)]
        for child in children:
            child.start()
        for child in children:
            child.join()
        return max(abs(child.exitcode or 0) for child in children)

    def _send(self, out: Path, policy: Path, number: int) -> None:
        guard, sent = Guard(policy), out / f"sent-{number}"
        begin = len(_lines(sent))
        for count in range(begin, self.messages):
            message = Message(
                job=f"job-{number}",
                round=count,
                sent=guard_toys.update(1000 * number + count),
                received=guard_toys.model(count),
            )
            released = guard.release(message)
            assert released.tensors is not None
            with sent.open("a") as file:  # it leaves
                file.write(f"{tensors_hash(released.tensors)}\n")

    def after_kill(self, out: Path) -> list[str]:
        """What left without an entry; a log that is no chain."""
        log = guard_toys.log_of(out)
        try:
            entries, _ = read_log(log) if log.exists() else ([], 0)
        except InputError as error:
            return [f"the log is broken: {error}"]
        released = {entry["content"] for entry in entries if entry["event"] == "released"}
        left = [line for number in range(2) for line in _lines(out / f"sent-{number}")]
        return [f"{line} left without an entry" for line in left if line not in released]

    def outcome(self, out: Path) -> str:
        """What left, in each process's order; the log may have an entry more for each kill."""
        problems = self.after_kill(out)
        _, torn = read_log(guard_toys.log_of(out))
        return json.dumps([problems, torn, [_lines(out / f"sent-{number}") for number in range(2)]])


def _lines(path: Path) -> list[str]:
    """The whole lines of a file; none if it is not there."""
    return path.read_text().split("\n")[:-1] if path.exists() else []


_EXCEEDED = 3
"""Exit status of a watch in which a limit is exceeded."""


class WatchOfRounds(Subject):
    """A watch of a recording of five rounds, of which one has no noise."""

    name = "watch"
    share = 0.2

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._deltas = folder / "deltas"
        with watch_toys.recorder(self._deltas) as recorder:
            for number in range(5):
                watch_toys.write_round(recorder, number, silent=number == 4)

    def start(self, out: Path) -> int:
        """Watches to the last round; the status of a limit that is exceeded is the right one."""
        command = ["watch", str(self._deltas), "--gate", watch_toys.LIMIT, "--out", str(out), "--until", "4"]
        status = program.main([*command, "--also", "release-check"])
        return 0 if status == _EXCEEDED else status or 1

    def after_kill(self, out: Path) -> list[str]:
        """Kept scores or a verdict that cannot be read."""
        problems = []
        for path in (*out.glob("rounds/*.json"), *out.glob("*.json")):
            try:
                json.loads(path.read_bytes())
            except ValueError as error:
                problems.append(f"{path.name}: {error}")
        return problems

    def outcome(self, out: Path) -> str:
        """The verdict without its time, and the rounds that have scores."""
        verdict = out / "verdict.json"
        if not verdict.exists():
            return "no verdict"
        held = json.loads(verdict.read_bytes()) | {"time": None}
        return json.dumps([held, sorted(path.name for path in out.glob("rounds/*"))], sort_keys=True)


class FollowedRecording(Subject):
    """A recorder whose recording is copied to other storage after each round."""

    name = "recorder with a copy"
    share = 0.2
    rounds = 12

    def start(self, out: Path) -> int:
        """Records the rounds that are missing; each that is recorded is acknowledged in a file."""
        folder = out / "deltas"
        begin = _first_missing(folder)
        if begin == 0:  # a recording without a round is begun anew
            shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True, exist_ok=True)
        model = {"w": np.zeros((50, 60), np.float32)}
        options: dict[str, Any] = {"parameters": model, "data": "toy", "key": b"k" * 32}
        resume_at = begin if begin else None
        with Recorder(folder, copy_to=f"file://{out / 'copy'}", resume_at=resume_at, **options) as recorder:
            for number in range(begin, self.rounds):
                draws = np.random.default_rng(number)
                updates = {f"c{client}": ({"w": draws.normal(size=(50, 60)).astype("f")}, 3) for client in range(4)}
                recorder.round(number, model, updates)
                with (out / "acknowledged").open("a") as file:
                    file.write(f"{number}\n")
        return 0

    def after_kill(self, out: Path) -> list[str]:
        """Acknowledged rounds that are lost, and a copy that is no recording."""
        problems = damaged(out / "deltas") if (out / "deltas/manifest.json").exists() else []
        acknowledged = [int(line) for line in _lines(out / "acknowledged")]
        held = _rounds(out / "deltas") if acknowledged else []
        problems += [f"round {number} is lost" for number in acknowledged if number not in held]
        copy = out / "copy"
        try:
            if (copy / "manifest.json").exists():
                json.loads((copy / "manifest.json").read_bytes())
            if complete_rounds(copy).rounds:  # a copy of no round yet is none that an audit reads
                _rounds(copy)
        except (InputError, ValueError) as error:
            problems.append(f"the copy: {error}"[:120])
        return problems

    def outcome(self, out: Path) -> str:
        """The content of the recording and of its copy."""
        return json.dumps([_hashes(out / "deltas"), _hashes(out / "copy")])


def _rounds(folder: Path) -> list[int]:
    """Rounds of a recording; none while it has no manifest."""
    return list(Recording(folder).rounds) if (folder / "manifest.json").exists() else []


def _first_missing(folder: Path) -> int:
    with contextlib.suppress(InputError):  # a recording without a round
        return max(_rounds(folder), default=-1) + 1
    return 0


def _hashes(folder: Path) -> dict[str, str]:
    """Hashes of all files that are not hidden."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


class PartsOfAnAudit(Subject):
    """Two parts of an audit at once, then the audit without a part, which joins them."""

    name = "audit in two parts"
    share = 0.1

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._deltas = folder / "deltas"
        dump = write_dump(folder / "dump")
        assert program.main(["convert", str(dump), "--out", str(self._deltas)]) == 0

    def start(self, out: Path) -> int:
        """Both parts, then the whole, unless that is done."""
        if (out / "results.json").exists():
            return 0
        children = [multiprocessing.Process(target=self._part, args=(out, number)) for number in range(2)]
        for child in children:
            child.start()
        for child in children:
            child.join()
        if any(child.exitcode for child in children):
            return 1
        return self._audit(out)

    def _audit(self, out: Path, *more: str) -> int:
        command = ["audit", str(self._deltas), "--out", str(out), "--also"]
        return program.main([*command, "llg,random-guess", "--jobs", "1", *more])

    def _part(self, out: Path, number: int) -> None:
        raise SystemExit(self._audit(out, "--part", f"{number}/2"))

    def outcome(self, out: Path) -> str:
        """The results, less how long they took, and that no estimates are left."""
        content = json.loads((out / "results.json").read_bytes())
        results = [{k: v for k, v in one.items() if k != "seconds_per_victim"} for one in content["results"]]
        return json.dumps([results, (out / "unfinished").exists()], sort_keys=True)


SUBJECTS: tuple[type[Subject], ...] = (GuardOfTwo, WatchOfRounds, FollowedRecording, PartsOfAnAudit)
