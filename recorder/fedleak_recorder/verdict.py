"""Verdict of an audit that runs at the same time as the training: what a server does before its next round.

``fedleak watch`` writes the verdict file; `VerdictFile` reads it, for `fedleak_recorder.flower_verdict`,
`fedleak_recorder.nvflare_verdict` and loops of one's own.
"""

import logging
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedleak_recorder.errors import InputError, require
from fedleak_recorder.files import read_bounded
from fedleak_recorder.plain_values import parse_json
from fedleak_recorder.pseudonyms import pseudonym, run_name

VERDICT = "verdict.json"
"""Name of the file."""
FORMAT = 1
_MOST = 2**24
"""Bytes of a verdict file."""
_POLL = 0.05
"""Seconds between two looks at the file while a verdict is awaited; short next to a round, long next to a look."""
_WAIT_S = 60.0
"""Seconds to wait for a verdict by default: the audit of a round of ten clients takes one to ten."""
_OTHER = "the verdict is on another training"
_OVERALL = ("ok", "exceeded", "unknown")
_STATES = ("exceeded", "kept", "open", "unmeasured")
"""Where a limit stands."""
_logger = logging.getLogger("fedleak_recorder")

Action = Literal["log", "drop", "stop"]
Missing = Literal["open", "closed"]


class LimitExceededError(RuntimeError):
    """The training ends before its next round, because of the verdict; the message says why."""


@dataclass(frozen=True)
class Decision:
    """What to do before a round.

    Attributes:
        stop: whether the training ends here.
        dropped: pseudonyms of the clients that take part no more.
        reason: one line for the log; empty if nothing is to be said.
    """

    stop: bool = False
    dropped: frozenset[int] = frozenset()
    reason: str = ""

    def leaves(self, client: str, key: bytes) -> bool:
        """Whether a client takes part no more, by the name and the key under which the recorder records it."""
        return bool(self.dropped) and pseudonym(client, key) in self.dropped


class VerdictFile:
    """File with the verdict of an audit on the rounds so far, read before each round.

    A verdict counts if it is on the newest round that was recorded, or on one that is at most `behind` rounds older.
    Otherwise, and if it is missing, unreadable, of another training or ``unknown`` (no attack has measured a limit),
    `missing` decides. That a limit is exceeded holds for all later rounds. What all limits together say is computed
    from them; a verdict that says something else ends the training, whatever `missing` is.

    Args:
        path: the file, ``verdict.json`` in the folder that ``fedleak watch`` writes to.
        on_exceeded: what a limit that is exceeded does: ``log`` says so, ``drop`` leaves out the clients whose scores
            are beyond it (and ends the training if none is named), ``stop`` ends the training before the next round.
        missing: without a verdict that counts, the training ends (``closed``) or goes on unchecked (``open``).
        wait_s: seconds to wait for a verdict that counts, before each round.
        behind: rounds that the verdict may be older; K - 1 for a watch with ``--every K``.

    Raises:
        InputError: an argument has another value.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        on_exceeded: Action = "stop",
        missing: Missing = "closed",
        wait_s: float = _WAIT_S,
        behind: int = 0,
    ) -> None:
        require(on_exceeded in ("log", "drop", "stop"), "on_exceeded as log, drop or stop", on_exceeded, "Correct it.")
        require(missing in ("open", "closed"), "missing as open or closed", missing, "Correct it.")
        is_duration = isinstance(wait_s, int | float) and math.isfinite(wait_s) and wait_s >= 0
        require(is_duration, "wait_s as seconds of at least 0", repr(wait_s), "Correct it.")
        is_count = isinstance(behind, int) and not isinstance(behind, bool) and behind >= 0
        require(is_count, "behind as a whole number of at least 0", repr(behind), "Correct it.")
        self.path = Path(path)
        self.on_exceeded = on_exceeded
        self.missing = missing
        self.wait_s = wait_s
        self.behind = behind
        self._first: int | None = None
        """Number of the round before which it was called first."""
        self._before_restart: dict[str, Any] | None = None
        """Verdict, at the first call, on rounds that are about to be recorded anew."""
        self._dropped: frozenset[int] = frozenset()

    def before(self, number: int, key: bytes | None = None) -> Decision:
        """What to do before a round; the rounds before it, from the first call on, were recorded.

        Waits for at most `wait_s` seconds. What is decided is logged as a warning; so is, at the first call, what a
        missing verdict will mean.

        Args:
            number: number of the round, as it is recorded.
            key: secret key of the recorder, by which the verdict on another training is recognised; None to take any.
        """
        if self._first is None:
            self._first = number
            self._begin(number)
        # Before the first round that this training records there is nothing that a verdict could be on.
        needed: int | None = number - 1 - self.behind
        if needed is not None and needed < self._first:
            needed = None
        decision = self._decide(number, needed, key)
        # Whoever was dropped once takes part no more.
        self._dropped |= decision.dropped
        if decision.reason:
            _logger.warning("before round %d: %s", number, decision.reason)
        return Decision(decision.stop, self._dropped, decision.reason)

    def _begin(self, number: int) -> None:
        """Says what a missing verdict will mean, and remembers one on rounds that a resumed training records anew."""
        does = "goes on unchecked"
        if self.missing == "closed":
            does = "ends"
        _logger.warning(
            "a verdict is read from %s before each round; without one that counts, after %g s, the training %s"
            " (missing=%r)",
            self.path,
            self.wait_s,
            does,
            self.missing,
        )
        try:
            content = _read(self.path)
        except (InputError, ValueError):  # none yet, as most trainings begin
            return
        if content["round"] >= number:
            self._before_restart = content

    def _decide(self, number: int, needed: int | None, key: bytes | None) -> Decision:
        """What to do before a round for which a verdict on round `needed` or a later one counts; None for any."""
        end = time.monotonic() + self.wait_s
        while True:
            contradiction = ""
            try:
                content = _read(self.path)
                problem = self._why_not(content, number, needed, key)
                # That a limit is exceeded holds for all later rounds, so that also an old verdict says it.
                if problem != _OTHER:
                    contradiction = _contradiction(content)
                    if not contradiction and content["overall"] == "exceeded":
                        return self._exceeded(content)
            except (InputError, ValueError) as error:
                problem = str(error)
            if not contradiction and (not problem or needed is None):
                return Decision()
            if time.monotonic() >= end:
                # A file that contradicts itself was changed by somebody, upon which no setting lets the training go on.
                closed = self.missing == "closed" or bool(contradiction)
                does = "the training ends" if closed else "the training goes on"
                return Decision(stop=closed, reason=f"{does} without a verdict: {contradiction or problem}")
            time.sleep(_POLL)

    def _why_not(self, content: dict[str, Any], number: int, needed: int | None, key: bytes | None) -> str:
        """Why a verdict does not count before a round; empty if it does."""
        if key is not None and content.get("run") != run_name(key):
            return _OTHER
        if content["round"] >= number:
            return f"the verdict is on round {content['round']}, which has not been"
        if content == self._before_restart:
            return (
                f"the verdict is on round {content['round']} as it was before the training went on from an earlier one"
            )
        if needed is not None and content["round"] < needed:
            return f"the verdict is on round {content['round']}, not on round {needed}"
        if content["overall"] == "unknown":
            return "no attack has measured a limit"
        return ""

    def _exceeded(self, content: dict[str, Any]) -> Decision:
        """What to do upon limits that are exceeded."""
        limits = [limit for limit in content["limits"] if limit["verdict"] == "exceeded"]
        sentences = []
        clients = set()
        for limit in limits:
            sentences.append(f"{limit['attack']} exceeds the limit {limit['at']:g} on {limit['limit']}")
            clients |= set(limit["clients"])
        why = f"{'; '.join(sentences)} in round {content['round']} or before"
        if self.on_exceeded == "log":
            return Decision(reason=why)
        left_out = self._dropped | clients
        if self.on_exceeded == "drop" and left_out:
            return Decision(dropped=frozenset(clients), reason=f"{why}: {len(left_out)} clients are left out")
        # Where no client is named, nobody can be left out.
        return Decision(stop=True, reason=f"{why}: the training ends")


def remaining(clients: Iterable[str], decision: Decision, key: bytes) -> list[str]:
    """The clients that a decision does not drop.

    Raises:
        LimitExceededError: none of them is left, or the decision is to stop.
    """
    all_clients = list(clients)
    remaining_clients = [client for client in all_clients if not decision.leaves(client, key)]
    if decision.stop:
        raise LimitExceededError(decision.reason)
    if all_clients and not remaining_clients:
        raise LimitExceededError(f"no client is left; {decision.reason}")
    return remaining_clients


def _contradiction(content: dict[str, Any]) -> str:
    """How what a verdict says of all limits contradicts what it says of each; empty if it does not."""
    verdicts = {limit["verdict"] for limit in content["limits"]}
    # One exceeded limit decides, whatever else is not measured.
    computed = "ok"
    if "exceeded" in verdicts:
        computed = "exceeded"
    elif "unmeasured" in verdicts:
        computed = "unknown"
    if content["overall"] == computed:
        return ""
    return f"the verdict says {content['overall']}, and its limits {computed}"


def _read(path: Path) -> dict[str, Any]:
    """Content of a verdict file.

    Raises:
        InputError: there is none, or it cannot be read.
        ValueError: it has another form.
    """
    content = parse_json(read_bounded(path, most=_MOST, way_out="Start fedleak watch."), where=str(path))
    if not isinstance(content, dict) or content.get("format") != FORMAT or content.get("overall") not in _OVERALL:
        raise ValueError(f"{path} is no verdict of format {FORMAT}")
    if type(content.get("round")) is not int or content["round"] < 0:
        raise ValueError(f"{path} names no round")
    if not isinstance(content.get("limits"), list) or not content["limits"]:
        raise ValueError(f"{path} names no limits")
    for limit in content["limits"]:
        _check_limit(limit, path)
    return content


def _check_limit(limit: Any, path: Path) -> None:
    """Checks what a verdict says of one limit.

    Raises:
        ValueError: a part is missing or of another kind.
    """
    if not isinstance(limit, dict) or not isinstance(limit.get("limit"), str):
        raise ValueError(f"{path} has a limit without its name")
    if limit.get("verdict") not in _STATES:
        raise ValueError(f"{path} has a limit whose verdict is none of {', '.join(_STATES)}")
    # Written so that NaN is no number either.
    is_number = type(limit.get("at")) in (int, float) and abs(limit["at"]) < math.inf
    clients = limit.get("clients")
    are_pseudonyms = isinstance(clients, list) and all(type(client) is int for client in clients)
    if not is_number or not are_pseudonyms:
        raise ValueError(f"{path} has a limit without its number or its clients")
    # A limit that no attack has measured is the only one without an attack.
    attack = limit.get("attack")
    may_lack = limit["verdict"] == "unmeasured" and attack is None
    if not isinstance(attack, str) and not may_lack:
        raise ValueError(f"{path} has a limit without the attack that decides")
