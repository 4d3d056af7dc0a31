"""Audit of a recording while it grows: the scores of each round are kept, and a verdict is written after every look."""

import dataclasses
import hashlib
import json
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedleak.core.attack import Attack
from fedleak.core.errors import InputError, require
from fedleak.evaluation.audit_plan import AuditPlan, Slow
from fedleak.evaluation.auditing import run_audit
from fedleak.evaluation.learner_match import simulates
from fedleak.evaluation.limits import Limit
from fedleak.evaluation.sequential_gate import LimitState, RoundScores, SequentialGate, overall, scores_of_round
from fedleak.recordings.complete_rounds import complete_rounds
from fedleak.recordings.recording import Recording
from fedleak_recorder.files import PRIVATE_FILE, READ_BY_OTHERS, read_bounded, write_whole
from fedleak_recorder.format import MANIFEST, only_writer, read_manifest
from fedleak_recorder.plain_values import parse_json
from fedleak_recorder.verdict import FORMAT, VERDICT

SETTINGS = "watch.json"
_POLL = 0.1
_DIGITS = 6


@dataclasses.dataclass(frozen=True)
class Look:
    """What is known after the newest audited round.

    Attributes:
        round: its number.
        overall: ``ok``, ``exceeded`` or ``unknown``.
        states: state of each limit.
        leaks: state by limit and attack.
        audited: number of audited rounds.
        seconds: seconds of the audit of the newest round.
    """

    round: int
    overall: str
    states: Sequence[LimitState]
    leaks: Mapping[str, LimitState]
    audited: int
    seconds: float


class Watch:
    """Audit of each round of a recording that another process writes.

    The folder keeps the scores of each audited round, so that a watch that was killed goes on where it was, and the
    verdict, which is replaced atomically. The verdict is what the kept scores say: it is written again at every start
    and where rounds are recorded anew, and removed where no scores are kept.

    Args:
        deltas: folder of the recording, which need not exist yet.
        folder: folder of the verdict and of the scores.
        limits: limits that `fedleak.evaluation.sequential_gate.measuring` accepts.
        attacks: attacks that measure them.
        open_recording: opens the recording as it is now.
        every: number of new rounds after which they are audited.
        until: number of the last round to wait for; None to wait until the recording is closed.
        expected: expected number of rounds.
        seed: seed of the attacks' draws.
        victims: number of clients to attack, drawn at random; None for all.
        slow: whether to run attacks that take minutes on a few clients.

    Raises:
        InputError: the folder is of a watch of another recording, or with other limits, attacks or options, or another
            process is watching with it.
    """

    def __init__(
        self,
        deltas: Path,
        folder: Path,
        limits: Sequence[Limit],
        attacks: Sequence[Attack],
        *,
        open_recording: Callable[[], Recording],
        every: int = 1,
        until: int | None = None,
        expected: int,
        seed: int = 0,
        victims: int | None = None,
        slow: bool = False,
    ) -> None:
        self.deltas, self.folder, self.limits, self.attacks = deltas, folder, limits, list(attacks)
        self.every, self.until, self.expected = every, until, expected
        self._open = open_recording
        self._seed, self._victims = seed, victims
        self._slow: Slow = "few" if slow else "none"
        self._gate = SequentialGate(limits, expected)
        self._scores: dict[int, str] = {}
        """Hash of the files of each audited round, by number."""
        self._seconds = 0.0
        self._run: str | None = None

    def looks(self) -> Iterator[Look]:
        """A look after each audited round; waits for new rounds, and ends with the recording or with `until`."""
        with only_writer(self.folder):
            settled = False
            while True:
                recorded = complete_rounds(self.deltas)
                if not settled and (self.deltas / MANIFEST).exists():
                    settled = True
                    self._settle()
                    # Before the first verdict of this start: it must not be on rounds that are recorded anew.
                    self._forget(recorded.rounds)
                    # A watch that was killed before it wrote the verdict on its last round has kept the scores only.
                    self._write(any_recorded=bool(recorded.rounds))
                    if self._scores:
                        yield self._look()
                elif self._forget(recorded.rounds):
                    self._write()
                wanted = [number for number in recorded.rounds if self.until is None or number <= self.until]
                new = [number for number in wanted if self._scores.get(number) != recorded.rounds[number]]
                last = recorded.closed or (self.until is not None and self.until in wanted)
                if new and (last or len(new) >= self.every):
                    for number in new:
                        self._audit(number, recorded.rounds[number])
                        yield self._look()
                elif last:
                    return
                else:
                    time.sleep(_POLL)

    def _forget(self, recorded: Mapping[int, str]) -> bool:
        """Forgets rounds that are recorded anew, because the training went on from a checkpoint; whether any were."""
        gone = [number for number, files in self._scores.items() if recorded.get(number) != files]
        if not gone or not recorded:
            return False
        for number in gone:
            self._file(number).unlink(missing_ok=True)
        self._gate, self._scores = SequentialGate(self.limits, self.expected), {}
        self._read_kept()
        return True

    def _settle(self) -> None:
        """Reads what an earlier watch of the same recording has kept."""
        path, settings = self.folder / SETTINGS, self._settings()
        if path.exists():
            held = self._held(path)
            differing = [key for key, value in settings.items() if not isinstance(held, dict) or held.get(key) != value]
            way_out = "Give another folder with --out, or the options of the earlier watch."
            expected = f"a folder without a watch, or with that of the same {', '.join(settings)}"
            require(not differing, expected, f"another {', '.join(differing)} in {self.folder}", way_out)
        else:
            write_whole(path, json.dumps(settings, indent=1).encode())
        self._run = read_manifest(self.deltas).run
        self._read_kept()

    def _held(self, path: Path) -> Any:
        """Settings of the earlier watch."""
        try:
            return parse_json(read_bounded(path), where=str(path))
        except ValueError as error:
            way_out = "Give another folder with --out, or delete this one: its rounds are audited again."
            raise InputError(expected=f"the settings of a watch in {path}", found=str(error), way_out=way_out) from None

    def _read_kept(self) -> None:
        for kept in sorted(self.folder.glob("rounds/*.json")):
            self._add(*self._read(kept))

    def _file(self, number: int) -> Path:
        return self.folder / "rounds" / f"{number:0{_DIGITS}d}.json"

    def _settings(self) -> dict[str, Any]:
        return {
            "recording": hashlib.sha256((self.deltas / MANIFEST).read_bytes()).hexdigest(),
            "limits": {limit.name: limit.bound for limit in self.limits},
            "attacks": sorted(f"{attack.family}/{attack.name}" for attack in self.attacks),
            "rounds": self.expected,
            "seed": self._seed,
            "victims": self._victims,
            "slow": self._slow,
        }

    def _read(self, path: Path) -> tuple[int, str, list[RoundScores]]:
        try:
            content = parse_json(read_bounded(path), where=str(path))
            scores = [_scores_in(one) for one in content["scores"]]
            return int(content["round"]), str(content["files"]), scores
        except (ValueError, TypeError, KeyError) as error:
            way_out = "Remove the file: its round is audited again."
            raise InputError(expected=f"the scores of a round in {path}", found=str(error), way_out=way_out) from None

    def _audit(self, number: int, files: str) -> None:
        start = time.perf_counter()
        first = not self._scores
        recording = self._open()
        self._run = recording.manifest.run
        plan = AuditPlan(
            recording=recording,
            attacks=self.attacks,
            seed=self._seed,
            victims=self._victims,
            rounds=[number],
            slow=self._slow,
            describe=False,
            check_learner=first,
        )
        evaluation = run_audit(plan, progress=False).evaluation
        if evaluation.mismatch is not None:  # what attacks that simulate clients find would be too little
            self.attacks = [attack for attack in self.attacks if not simulates(attack)]
            kept = {name for attack in self.attacks for name in attack.names()}
            evaluation.scores = evaluation.scores[evaluation.scores["attack"].isin(kept)]
        scores = scores_of_round(evaluation, {limit.metric for limit in self.limits})
        rows = [{**dataclasses.asdict(one), "values": [_plain(value) for value in one.values]} for one in scores]
        missing = {name: str(reason) for name, reason in evaluation.missing.items()}
        content = {"round": number, "files": files, "scores": rows, "missing": missing}
        write_whole(self._file(number), json.dumps(content).encode())
        self._seconds = time.perf_counter() - start
        self._add(number, files, scores)
        self._write()

    def _add(self, number: int, files: str, scores: list[RoundScores]) -> None:
        self._scores[number] = files
        self._gate.add_round(scores)

    def _look(self) -> Look:
        states = self._gate.states()
        number = max(self._scores)
        return Look(number, overall(states), states, self._gate.leaks(), len(self._scores), self._seconds)

    def _write(self, *, any_recorded: bool = True) -> None:
        """Writes the verdict on the newest audited round; without one, or without a recorded one, there is none."""
        if not self._scores or not any_recorded:
            (self.folder / VERDICT).unlink(missing_ok=True)
            return
        look = self._look()
        content = {
            "format": FORMAT,
            "run": self._run,
            "round": look.round,
            "overall": look.overall,
            "limits": [{**dataclasses.asdict(one), "clients": list(one.clients)} for one in look.states],
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        # A server of another account reads the verdict, and nothing else, where the folder lets it.
        mode = PRIVATE_FILE | (stat.S_IMODE(self.folder.stat().st_mode) & READ_BY_OTHERS)
        write_whole(self.folder / VERDICT, json.dumps(content, indent=1).encode(), mode=mode)


def _plain(value: float) -> float | str | None:
    """A number as JSON has it: infinite ones as text, an undefined one as nothing."""
    return None if value != value else value if abs(value) != float("inf") else str(value)


def _scores_in(held: Any) -> RoundScores:
    """Scores of one attack and metric in a file of a round.

    Raises:
        ValueError: they are of other types, or not one of each for each person.
        TypeError, KeyError: fields lack, or are others.
    """
    scores = RoundScores(**held)
    texts = scores.attack, scores.metric, scores.family, scores.inferred
    if not all(isinstance(text, str) for text in texts) or not isinstance(scores.joint, bool):
        raise ValueError("fields of other types")
    lists = scores.victims, scores.persons, scores.values
    if not all(isinstance(part, list) for part in lists) or len({len(part) for part in lists}) != 1:
        raise ValueError("victims, persons and values that are no lists of one length")
    if not all(type(number) is int for number in (*scores.victims, *scores.persons)):
        raise ValueError("victims or persons that are no whole numbers")
    # Infinite values are texts in JSON, and missing ones null.
    values = [float("nan") if value is None else float(value) for value in scores.values]
    return dataclasses.replace(scores, values=values)
