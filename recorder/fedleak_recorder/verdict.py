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
_POLL = 0.05
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
        number = isinstance(wait_s, int | float) and math.isfinite(wait_s) and wait_s >= 0
        require(number, "wait_s as seconds of at least 0", repr(wait_s), "Correct it.")
        whole = isinstance(behind, int) and not isinstance(behind, bool) and behind >= 0
        require(whole, "behind as a whole number of at least 0", repr(behind), "Correct it.")
        self.path, self.on_exceeded, self.missing = Path(path), on_exceeded, missing
        self.wait_s, self.behind = wait_s, behind
        self._first: int | None = None
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
        needed = number - 1 - self.behind
        decision = self._decide(number, needed if needed >= self._first else None, key)
        self._dropped |= decision.dropped
        if decision.reason:
            _logger.warning("before round %d: %s", number, decision.reason)
        return Decision(decision.stop, self._dropped, decision.reason)

    def _begin(self, number: int) -> None:
        """Says what a missing verdict will mean, and remembers one on rounds that a resumed training records anew."""
        does = "ends" if self.missing == "closed" else "goes on unchecked"
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
        except (InputError, ValueError):
            return
        if content["round"] >= number:
            self._before_restart = content

    def _decide(self, number: int, needed: int | None, key: bytes | None) -> Decision:
        end = time.monotonic() + self.wait_s
        while True:
            contradiction = ""
            try:
                content = _read(self.path)
                problem = self._why_not(content, number, needed, key)
                if problem != _OTHER:
                    contradiction = _contradiction(content)
                    if not contradiction and content["overall"] == "exceeded":
                        return self._exceeded(content)
            except (InputError, ValueError) as error:
                problem = str(error)
            if not contradiction and (not problem or needed is None):
                return Decision()
            if time.monotonic() >= end:
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
        return "no attack has measured a limit" if content["overall"] == "unknown" else ""

    def _exceeded(self, content: dict[str, Any]) -> Decision:
        limits = [one for one in content["limits"] if one["verdict"] == "exceeded"]
        why = "; ".join(f"{one['attack']} exceeds the limit {one['at']:g} on {one['limit']}" for one in limits)
        why = f"{why} in round {content['round']} or before"
        if self.on_exceeded == "log":
            return Decision(reason=why)
        clients = frozenset(client for one in limits for client in one["clients"])
        if self.on_exceeded == "drop" and clients | self._dropped:
            return Decision(dropped=clients, reason=f"{why}: {len(clients | self._dropped)} clients are left out")
        return Decision(stop=True, reason=f"{why}: the training ends")


def remaining(clients: Iterable[str], decision: Decision, key: bytes) -> list[str]:
    """The clients that a decision does not drop.

    Raises:
        LimitExceededError: none of them is left, or the decision is to stop.
    """
    asked = list(clients)
    kept = [client for client in asked if not decision.leaves(client, key)]
    if decision.stop:
        raise LimitExceededError(decision.reason)
    if asked and not kept:
        raise LimitExceededError(f"no client is left; {decision.reason}")
    return kept


def _contradiction(content: dict[str, Any]) -> str:
    """How what a verdict says of all limits contradicts what it says of each; empty if it does not."""
    verdicts = {one["verdict"] for one in content["limits"]}
    computed = "exceeded" if "exceeded" in verdicts else "unknown" if "unmeasured" in verdicts else "ok"
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
    for one in content["limits"]:
        _check_limit(one, path)
    return content


def _check_limit(one: Any, path: Path) -> None:
    """Checks what a verdict says of one limit.

    Raises:
        ValueError: a part is missing or of another kind.
    """
    if not isinstance(one, dict) or not isinstance(one.get("limit"), str):
        raise ValueError(f"{path} has a limit without its name")
    if one.get("verdict") not in _STATES:
        raise ValueError(f"{path} has a limit whose verdict is none of {', '.join(_STATES)}")
    number = type(one.get("at")) in (int, float) and abs(one["at"]) < math.inf
    clients = one.get("clients")
    if not number or not isinstance(clients, list) or not all(type(client) is int for client in clients):
        raise ValueError(f"{path} has a limit without its number or its clients")
    # A limit that no attack has measured is the only one without an attack.
    if not isinstance(one.get("attack"), str) and (one["verdict"] != "unmeasured" or one.get("attack") is not None):
        raise ValueError(f"{path} has a limit without the attack that decides")
