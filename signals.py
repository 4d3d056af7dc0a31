"""Ends a command on SIGTERM or SIGINT within seconds, with exit status 128 + the number of the signal."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

GRACE = 5.0
"""Seconds that a command has to end by itself before its process is ended."""
_WATCH = "ends-with-parent"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(BaseException):
    """Raised in the main thread where a signal asks the process to end; no ``except Exception`` swallows it.

    Args:
        signum: number of the signal.
    """

    def __init__(self, signum: int) -> None:
        self.signum = signum
        super().__init__(signal.Signals(signum).name)

    @property
    def status(self) -> int:
        """Exit status as a shell has it: 143 of SIGTERM, 130 of SIGINT."""
        return 128 + self.signum


@contextmanager
def ends_on_signals(grace: float = GRACE) -> Iterator[None]:
    """Raises `Stopped` in the block on the first SIGTERM or SIGINT, and ends the process where that does not help.

    Lightning's Trainer puts a handler of its own before the present one while it fits, which only notes SIGTERM; it
    calls the present one too, as long as that is a function and not the default. Code outside Python (a solver, a long
    matrix product) runs no handler until it returns, so a thread waits for the signal as well: after `grace` seconds it
    ends the process, and what was written by then stays whole, because files are renamed into place.

    The handlers before are put back at the end. A signal that is ignored, as SIGINT is in a shell's background job,
    stays ignored. Outside the main thread, which alone may set handlers, the block runs as it is.

    Args:
        grace: seconds between the signal and the end by force.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    taken = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    done = threading.Event()
    raised: list[int] = []

    def stop(signum: int, _: FrameType | None) -> None:
        if not raised:  # a second signal must not interrupt what the first one ends
            raised.append(signum)
            raise Stopped(signum)

    for number in taken:
        signal.signal(number, stop)
    former = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    watch = threading.Thread(target=_end_by_force, args=(reading, done, grace), name="ends-on-signals", daemon=True)
    watch.start()
    try:
        yield
    finally:
        _restore(before, taken, former)
        done.set()
        os.close(writing)
        watch.join()
        os.close(reading)


def _restore(before: dict[signal.Signals, Any], taken: list[signal.Signals], former: int) -> None:
    for number in taken:
        handler = before[number]
        signal.signal(number, signal.SIG_DFL if handler is None else handler)
    signal.set_wakeup_fd(former)


def _end_by_force(reading: int, done: threading.Event, grace: float) -> None:
    """Waits for a signal of ours, then for the end of the block; ends the process where that does not come."""
    while content := os.read(reading, 64):
        ours = [number for number in content if number in _SIGNALS]
        if ours and not done.wait(grace):
            print(f"ended by {signal.Signals(ours[0]).name}", file=sys.stderr, flush=True)
            os._exit(128 + ours[0])


def end_with_parent(every: float = 1.0) -> None:
    """Ends this process when the process that started it is gone, even by SIGKILL; a thread looks after it.

    Called again, it does nothing.

    Args:
        every: seconds between two looks.
    """
    if any(thread.name == _WATCH for thread in threading.enumerate()):
        return
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            done.wait(every)
        os._exit(1)

    done = threading.Event()
    threading.Thread(target=watch, name=_WATCH, daemon=True).start()
