"""Progress of an attack within one view, reported to a listener such as a progress bar."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

_Thing = TypeVar("_Thing")
_hear: ContextVar[Callable[[float], None] | None] = ContextVar("attack_progress", default=None)


@contextmanager
def heard_by(hear: Callable[[float], None]) -> Iterator[None]:
    """Calls `hear` with every share of the work, from 0 to 1, that is reported inside the block."""
    token = _hear.set(hear)
    try:
        yield
    finally:
        _hear.reset(token)


def advance(share: float) -> None:
    """Reports the share of the view's work that is done; ignored without a listener."""
    hear = _hear.get()
    if hear is not None:
        hear(min(max(share, 0.0), 1.0))


def counted(parts: Sequence[_Thing]) -> Iterator[_Thing]:
    """Iterates over the parts of an attack's work and reports progress after each."""
    for done, part in enumerate(parts, start=1):
        yield part
        advance(done / len(parts))
