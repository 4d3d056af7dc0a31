"""How far an attack has come within one view: a slow attack says it, and whoever shows a bar hears it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

_Thing = TypeVar("_Thing")
_hear: ContextVar[Callable[[float], None] | None] = ContextVar("attack_progress", default=None)


@contextmanager
def heard_by(hear: Callable[[float], None]) -> Iterator[None]:
    """Calls `hear` with every share that is said inside the block.

    Args:
        hear: is given the share of the view's work that is done, from 0 to 1.
    """
    token = _hear.set(hear)
    try:
        yield
    finally:
        _hear.reset(token)


def advance(share: float) -> None:
    """Says which share of the view's work is done; nothing happens where nobody hears.

    Args:
        share: from 0 to 1.
    """
    hear = _hear.get()
    if hear is not None:
        hear(min(max(share, 0.0), 1.0))


def counted(parts: Sequence[_Thing]) -> Iterator[_Thing]:
    """The parts of an attack's work, one after the other, each said when it is done."""
    for done, part in enumerate(parts, start=1):
        yield part
        advance(done / len(parts))
