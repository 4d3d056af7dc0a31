"""Log of a gateway's refused calls: counts by reason, so that whoever floods the gateway does not flood the log."""

import logging
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fedleak_guard
from fedleak_guard.chained_log import FIRST, ChainedLog, read_log
from fedleak_recorder.errors import require

GATEWAY_LOG = "gateway.jsonl"
"""File next to the site's log; an unbroken chain of its own, which `fedleak-guard verify` checks."""
INTERVAL = 60.0
"""Seconds between two entries of counts: at most 1,440 a day, however many calls are refused."""
_logger = logging.getLogger("fedleak_guard")


class RejectedError(Exception):
    """A call that the gateway does not answer, and that nothing follows.

    Args:
        reason: why, one of few fixed texts; the log counts by it, so it never holds anything that a caller sent.
        status: of HTTP.
    """

    def __init__(self, reason: str, status: int = 403) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


class GatewayLog:
    """Counts of refused calls, and when the gateway started and with whom.

    Args:
        folder: the policy's folder ``evidence``.
        clock: seconds since 1970.
    """

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        self._log = ChainedLog(folder, GATEWAY_LOG)
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._written = -INTERVAL
        """When counts were last written."""

    def count(self, reason: str) -> None:
        """Counts a refused call."""
        with self._lock:
            self._counts[reason] += 1

    def write_due(self) -> None:
        """Writes what was counted, unless the last entry is too recent.

        Raises:
            OSError: it could not be written; then the gateway lets nothing out.
            InputError: the chain is broken.
        """
        now = self._clock()
        with self._lock:
            # A clock that was set back makes a difference below 0; then it is written.
            is_recent = 0 <= now - self._written < INTERVAL
            if not self._counts or is_recent:
                return
            counts = dict(sorted(self._counts.items()))
            # The counts are forgotten only once they are on the disk.
            self._append("calls", refused=counts)
            self._counts.clear()
            self._written = now
        _logger.error("refused calls, of which nothing left the site: %s", counts)

    def note(self, event: str, **content: Any) -> None:
        """Writes an entry at once.

        Raises:
            OSError: it could not be written.
            InputError: the chain is broken.
        """
        with self._lock:
            self._append(event, **content)

    def _append(self, event: str, **content: Any) -> None:
        now = self._clock()
        head = {
            "format": 1,
            "version": fedleak_guard.__version__,
            "time": now,
            "date": datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds"),
            "event": event,
        }
        with self._log.locked():
            self._log.append({**head, **content})


def gateway_lines(path: Path, head: str | None = None) -> list[str]:
    """What a gateway's log says, as lines for a person, after a check of its chain.

    Args:
        path: of the log.
        head: a hash noted earlier, which the chain must still contain; None for no such check.

    Raises:
        InputError: the chain is broken, or does not contain `head`.
    """
    entries, torn = read_log(path)
    hashes = [FIRST, *(entry["hash"] for entry in entries)]
    way_out = "The end of the log was cut off or replaced; ask for a copy."
    require(head in (None, *hashes), f"the entry {head} in the chain", "no such entry", way_out)
    counts = Counter[str]()
    for entry in entries:
        refused = entry.get("refused")
        if not isinstance(refused, dict):
            continue
        for reason, number in refused.items():
            if isinstance(number, int):  # the log may be another gateway's, or a person's
                counts[reason] += number
    sentences = [
        f"{len(entries)} entries in an unbroken chain, head {hashes[-1]}",
        f"{counts.total()} calls refused",
    ]
    for reason, number in counts.most_common():
        sentences.append(f"  {reason}: {number}")
    if torn:
        sentences.append(f"{torn} bytes of an incomplete last entry")
    return sentences
