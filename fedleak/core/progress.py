"""Progress: of an attack within one view and of the clients within a round, for a bar; of what has no bar, in words."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

_Thing = TypeVar("_Thing")
_listener: ContextVar[Callable[[float], None] | None] = ContextVar("attack_progress", default=None)
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
        yield
    finally:
        _listener.reset(token)


def report_progress(share: float) -> None:
    """Reports the share of the view's work that is done; ignored without a listener."""
    listener = _listener.get()
    if listener is not None:
        listener(min(max(share, 0.0), 1.0))


def with_progress(parts: Sequence[_Thing]) -> Iterator[_Thing]:
    """Iterates over the parts of an attack's work and reports progress after each."""
    for done, part in enumerate(parts, start=1):
        yield part
        report_progress(done / len(parts))


def say_what_starts(text: str) -> None:
    """Prints what a command does now, if a person watches: without a terminal, as in a CI job, nothing."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"{text} ...", file=sys.stderr, flush=True)
