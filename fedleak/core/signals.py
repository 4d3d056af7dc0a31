"""Ends a command on SIGTERM or SIGINT within seconds, with exit status 128 + the number of the signal."""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

GRACE = 5.0
"""Seconds that a command has to end by itself before its process is ended."""
_PR_SET_PDEATHSIG = 1
"""Of linux/prctl.h: the signal that a process gets when its parent ends."""
_WATCH = "ends-with-parent"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(BaseException):
    """Raised in the main thread where a signal asks the process to end; no ``except Exception`` swallows it.

    Attributes:
        kept: what of the command's work is kept; empty if it does not say.
    """

    def __init__(self, signum: int) -> None:
        self.signum = signum
        self.kept = ""
        super().__init__(signal.Signals(signum).name)

    @property
    def status(self) -> int:
        """Exit status as a shell has it: 143 of SIGTERM, 130 of SIGINT."""
        return 128 + self.signum


class Stopping:
    """What a command does when it is asked to end; whoever knows more than the command sets it while the block runs.

    Attributes:
        asked: number of the signal that asked, None for none so far.
        forward: passes the signal on to processes that this one has started; called in another thread, at once.
        last_words: what the command says, given the signal's name; empty for nothing.
        take: takes the signals again from a library that took them in the block.
    """

    def __init__(self, program: str = "") -> None:
        self.program = program
        self.asked: int | None = None
        self.forward: Callable[[int], None] = lambda _: None
        self.last_words: Callable[[str], str] = lambda name: f"ended by {name}"
        self.take: Callable[[], None] = lambda: None

    def asked_within(self, seconds: float) -> bool:
        """Whether a signal has come, or comes within some seconds: other processes may end before it arrives here."""
        with suppress(Stopped):  # raised by the signal that is waited for
            end = time.monotonic() + seconds
            while self.asked is None and time.monotonic() < end:
                time.sleep(0.05)
        return self.asked is not None

    def say(self, signum: int) -> None:
        """Prints the last words."""
        words = self.last_words(signal.Signals(signum).name)
        if not words:
            return
        if self.program:
            words = f"{self.program}: {words}"
        print(words, file=sys.stderr, flush=True)


@contextmanager
def ends_on_signals(grace: float = GRACE, program: str = "") -> Iterator[Stopping]:
    """Raises `Stopped` in the block on the first SIGTERM or SIGINT, and ends the process where that does not help.

    Lightning's Trainer puts a handler of its own before the present one while it fits, which only notes SIGTERM; it
    calls the present one too, as long as that is a function and not the default. Code outside Python (a solver, a long
    matrix product) runs no handler until it returns, so a thread waits for the signal as well: after `grace` seconds it
    ends the process, and what was written by then stays whole, because files are renamed into place.

    A process forked from this one, such as a worker that loads data, has nothing to finish: the signal ends it at once.

    The handlers before are put back at the end. A signal that is ignored, as SIGINT is in a shell's background job,
    stays ignored. Outside the main thread, which alone may set handlers, the block runs as it is.

    Args:
        grace: seconds between the signal and the end by force.
        program: whose last words they are.
    """
    stopping = Stopping(program)
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return
    handlers_before = {number: signal.getsignal(number) for number in _SIGNALS}
    handled = [number for number, handler in handlers_before.items() if handler is not signal.SIG_IGN]
    # The system writes the number of each signal to this pipe, from which a thread reads even while Python is busy.
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    done = threading.Event()
    raised: list[int] = []
    owner = os.getpid()

    def stop(signum: int, _: FrameType | None) -> None:
        if os.getpid() != owner:
            os._exit(128 + signum)
        stopping.asked = stopping.asked or signum
        if not raised:  # a second signal must not interrupt what the first one ends
            raised.append(signum)
            raise Stopped(signum)

    def take() -> None:
        for number in handled:
            signal.signal(number, stop)

    def in_child() -> None:
        if not done.is_set():
            signal.set_wakeup_fd(-1)  # the pipe is the parent's: a signal to this process must not end that one

    stopping.take = take
    os.register_at_fork(after_in_child=in_child)
    take()
    wakeup_before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    watch = threading.Thread(
        target=_end_by_force,
        args=(reading, done, grace, stopping),
        name="ends-on-signals",
        daemon=True,
    )
    watch.start()
    try:
        yield stopping
    finally:
        if stopping.asked is not None:
            stopping.forward(stopping.asked)  # a busy machine may not have run the thread yet
        # In this order: with the end of the writing side, the thread's read returns, and it can be waited for.
        done.set()
        _restore(handlers_before, handled, wakeup_before)
        os.close(writing)
        watch.join()
        os.close(reading)


def _restore(handlers_before: dict[signal.Signals, Any], handled: list[signal.Signals], wakeup_before: int) -> None:
    for number in handled:
        # A handler that was not set from Python is None, and cannot be set again.
        signal.signal(number, handlers_before[number] or signal.SIG_DFL)
    signal.set_wakeup_fd(wakeup_before)


def _end_by_force(reading: int, done: threading.Event, grace: float, stopping: Stopping) -> None:
    """Waits for a signal of ours, then for the end of the block; ends the process where that does not come."""
    while content := os.read(reading, 64):
        ours = [number for number in content if number in _SIGNALS]
        if not ours or done.is_set():
            continue
        stopping.asked = stopping.asked or ours[0]
        stopping.forward(ours[0])
        if not done.wait(grace):
            stopping.say(ours[0])
            os._exit(128 + ours[0])


def leave(status: int, grace: float = GRACE) -> NoReturn:
    """Leaves the process as `sys.exit` does; after a signal, waits `grace` seconds for threads and exit hooks."""
    if status > 128:
        timer = threading.Timer(grace, os._exit, (status,))
        timer.daemon = True
        timer.start()
    sys.exit(status)


def die_with_parent(parent: int) -> None:
    """Ends this process at once when the process that started it is gone, even by SIGKILL.

    Linux sends the signal itself when the thread ends that started this process: it must be the parent's main thread.
    Elsewhere, and for a parent that was gone before, a thread looks after it as for `end_with_parent`.

    Args:
        parent: number of the process that started this one.
    """
    with suppress(OSError, AttributeError):  # no Linux: the thread alone
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    end_with_parent(parent)


def end_with_parent(parent: int, every: float = 1.0) -> None:
    """Ends this process when the process that started it is gone, even by SIGKILL; a thread looks after it.

    The parent names itself: a worker that imports for seconds may have lost it before it asks for its parent's number.
    Linux could send a signal instead, but it does so when the *thread* ends that started the worker. Called again, it
    does nothing.

    Args:
        parent: number of the process that started this one.
        every: seconds between two looks.
    """
    # An orphan has another parent: init, or a process that collects orphans.
    if os.getppid() != parent:
        os._exit(1)
    if any(thread.name == _WATCH for thread in threading.enumerate()):
        return

    def watch() -> None:
        while os.getppid() == parent:
            done.wait(every)
        os._exit(1)

    done = threading.Event()
    threading.Thread(target=watch, name=_WATCH, daemon=True).start()
