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
from fedleak.evaluation.learner_check import simulates
from fedleak.evaluation.limits import Limit
from fedleak.evaluation.sequential_gate import LimitState, RoundScores, SequentialGate, overall, scores_of_round
from fedleak.recordings.complete_rounds import complete_rounds
from fedleak.recordings.recording import Recording
from fedleak_recorder.files import PRIVATE_FILE, READ_BY_OTHERS, read_bounded, write_whole
from fedleak_recorder.format import MANIFEST, only_writer, read_manifest
from fedleak_recorder.plain_values import parse_json
from fedleak_recorder.verdict import FORMAT, VERDICT

SETTINGS = "watch.json"
"""File of what a watch watches and how, in its folder."""
_POLL = 0.1
"""Seconds between two looks at the recording."""
_DIGITS = 6
"""Digits of the number of a round in the name of its file, so that names sort like numbers."""


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
        self.deltas = deltas
        self.folder = folder
        self.limits = limits
        self.attacks = list(attacks)
        self.every = every
        self.until = until
        self.expected = expected
        self._open = open_recording
        self._seed = seed
        self._victims = victims
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
                # Rounds up to the last one to wait for, and of them those not audited, or with other files than then.
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
        # A gate cannot take rounds back, so a new one reads those that stay.
        self._gate = SequentialGate(self.limits, self.expected)
        self._scores = {}
        self._read_stored_rounds()
        return True

    def _settle(self) -> None:
        """Reads what an earlier watch of the same recording has kept."""
        path = self.folder / SETTINGS
        settings = self._settings()
        if path.exists():
            earlier = self._earlier_settings(path)
            differing = list(settings)
            if isinstance(earlier, dict):
                differing = [key for key, value in settings.items() if earlier.get(key) != value]
            require(
                not differing,
                f"a folder without a watch, or with that of the same {', '.join(settings)}",
                f"another {', '.join(differing)} in {self.folder}",
                "Give another folder with --out, or the options of the earlier watch.",
            )
        else:
            write_whole(path, json.dumps(settings, indent=1).encode())
        self._run = read_manifest(self.deltas).run
        self._read_stored_rounds()

    def _earlier_settings(self, path: Path) -> Any:
        """Settings of the earlier watch."""
        try:
            return parse_json(read_bounded(path), where=str(path))
        except ValueError as error:
            way_out = "Give another folder with --out, or delete this one: its rounds are audited again."
            raise InputError(expected=f"the settings of a watch in {path}", found=str(error), way_out=way_out) from None

    def _read_stored_rounds(self) -> None:
        """Reads the scores of the rounds that an earlier start audited, in their order."""
        for path in sorted(self.folder.glob("rounds/*.json")):
            number, files, scores = self._read(path)
            self._add(number, files, scores)

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
            scores = [_scores_in(fields) for fields in content["scores"]]
            return int(content["round"]), str(content["files"]), scores
        except (ValueError, TypeError, KeyError) as error:
            way_out = "Remove the file: its round is audited again."
            raise InputError(expected=f"the scores of a round in {path}", found=str(error), way_out=way_out) from None

    def _audit(self, number: int, files: str) -> None:
        start = time.perf_counter()
        # The learner is compared with the clients' once, in the first audited round.
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
        # With a wrong learner, what attacks that simulate clients infer would be too little.
        if evaluation.mismatch is not None:
            self.attacks = [attack for attack in self.attacks if not simulates(attack)]
            names: set[str] = set()
            for attack in self.attacks:
                names.update(attack.names())
            evaluation.scores = evaluation.scores[evaluation.scores["attack"].isin(names)]
        scores = scores_of_round(evaluation, {limit.metric for limit in self.limits})
        rows = []
        for of_attack in scores:
            values = [_plain(value) for value in of_attack.values]
            rows.append({**dataclasses.asdict(of_attack), "values": values})
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
        limits = [{**dataclasses.asdict(state), "clients": list(state.clients)} for state in look.states]
        content = {
            "format": FORMAT,
            "run": self._run,
            "round": look.round,
            "overall": look.overall,
            "limits": limits,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        # A server of another account reads the verdict, and nothing else, where the folder lets it.
        mode = PRIVATE_FILE | (stat.S_IMODE(self.folder.stat().st_mode) & READ_BY_OTHERS)
        write_whole(self.folder / VERDICT, json.dumps(content, indent=1).encode(), mode=mode)


def _plain(value: float) -> float | str | None:
    """A number as JSON has it: infinite ones as text, an undefined one as nothing."""
    if value != value:
        return None
    if abs(value) == float("inf"):
        return str(value)
    return value


def _scores_in(fields: Any) -> RoundScores:
    """Scores of one attack and metric in a file of a round.

    Raises:
        ValueError: they are of other types, or not one of each for each person.
        TypeError, KeyError: fields lack, or are others.
    """
    scores = RoundScores(**fields)
    texts = scores.attack, scores.metric, scores.family, scores.inferred
    if not all(isinstance(text, str) for text in texts) or not isinstance(scores.joint, bool):
        raise ValueError("fields of other types")
    lists = scores.victims, scores.persons, scores.values
    if not all(isinstance(part, list) for part in lists) or len({len(part) for part in lists}) != 1:
        raise ValueError("victims, persons and values that are no lists of one length")
    if not all(type(number) is int for number in (*scores.victims, *scores.persons)):
        raise ValueError("victims or persons that are no whole numbers")
    values = [_number(value) for value in scores.values]
    return dataclasses.replace(scores, values=values)


def _number(value: Any) -> float:
    """A number of JSON, where an infinite one is a text, and an undefined one null."""
    if value is None:
        return float("nan")
    return float(value)
