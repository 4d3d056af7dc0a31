"""Progress: of an attack within one view and of the clients within a round, for a bar; of what has no bar, in words."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

_Thing = TypeVar("_Thing")
_listener: ContextVar[Callable[[float], None] | None] = ContextVar("attack_progress", default=None)
_part: ContextVar[tuple[float, float]] = ContextVar("progress_part", default=(0.0, 1.0))
"""Where the work that is going on begins and ends, in shares of the view's."""
_of_clients: ContextVar[Callable[[int], None] | None] = ContextVar("client_progress", default=None)


@contextmanager
def client_listener(listener: Callable[[int], None]) -> Iterator[None]:
    """Calls `listener` with every number of clients whose local training ends inside the block."""
    token = _of_clients.set(listener)
    try:
        yield
    finally:
        _of_clients.reset(token)


def report_clients(count: int) -> None:
    """Reports that the local training of some more clients has ended; ignored without a listener."""
    listener = _of_clients.get()
    if listener is not None:
        listener(count)


@contextmanager
def progress_listener(listener: Callable[[float], None]) -> Iterator[None]:
    """Calls `listener` with every share of the work, from 0 to 1, that is reported inside the block."""
    token = _listener.set(listener)
    try:
        with _within((0.0, 1.0)):
            yield
    finally:
        _listener.reset(token)


def report_progress(share: float) -> None:
    """Reports the share of the work that is done, of the part of it that is going on; ignored without a listener."""
    listener = _listener.get()
    if listener is not None:
        start, end = _part.get()
        listener(start + (end - start) * min(max(share, 0.0), 1.0))


@contextmanager
def progress_part(start: float, end: float) -> Iterator[None]:
    """Block whose work is a part of that around it, from one share of it to another; it is reported at its end.

    Example:
        >>> shares = []
        >>> with progress_listener(shares.append), progress_part(0.5, 1.0):
        ...     report_progress(0.5)
        >>> shares
        [0.75, 1.0]
    """
    outer_start, outer_end = _part.get()
    length = outer_end - outer_start
    with _within((outer_start + length * start, outer_start + length * end)):
        yield
        report_progress(1.0)


def with_progress(parts: Sequence[_Thing]) -> Iterator[_Thing]:
    """Iterates over the parts of an attack's work and reports progress after each.

    What a part reports of itself is a share of that part.
    """
    for number, part in enumerate(parts):
        with progress_part(number / len(parts), (number + 1) / len(parts)):
            yield part


@contextmanager
def _within(part: tuple[float, float]) -> Iterator[None]:
    outer = _part.get()
    _part.set(part)
    try:
        yield
    finally:
        # No token: a generator that is left early ends in the context of whoever drops it.
        _part.set(outer)


def say_what_starts(text: str) -> None:
    """Prints what a command does now, if a person watches: without a terminal, as in a CI job, nothing."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"{text} ...", file=sys.stderr, flush=True)
