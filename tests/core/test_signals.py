"""A command ends on SIGTERM and SIGINT, whatever it is doing, and leaves no handler behind."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedleak.core.signals import Stopped, ends_on_signals
from tests.places import ROOT


def swallow_errors(number: signal.Signals) -> None:
    with ends_on_signals(), contextlib.suppress(Exception):
        os.kill(os.getpid(), number)
        time.sleep(30)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A process that SIGINT interrupts, also where the tests were started in the background of a script."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_is_an_exception_that_no_except_exception_swallows(number: signal.Signals, status: int) -> None:
    before = signal.getsignal(number), signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped) as stopped:
        swallow_errors(number)
    assert stopped.value.status == status
    assert (signal.getsignal(number), signal.getsignal(signal.SIGTERM)) == before
    assert signal.set_wakeup_fd(-1) == -1


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ends_on_signals():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


SWALLOWS = """
import signal, time
from fedleak.core.signals import ends_on_signals
with ends_on_signals(grace=0.5):
    signal.signal(signal.SIGTERM, lambda *_: None)  # as a library that only notes it
    print("ready", flush=True)
    time.sleep(60)
"""
FAMILY = """
import os, subprocess, sys, time
code = f"import time; from fedleak.core.signals import end_with_parent; end_with_parent({os.getpid()}, 0.1)"
code += "; print('ready', flush=True); time.sleep(60)"
started = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
started.stdout.readline()
print(started.pid, flush=True)
time.sleep(60)
"""


def start(code: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


@pytest.mark.integration
def test_a_handler_that_swallows_the_signal_does_not_keep_the_process() -> None:
    process, _ = start(SWALLOWS)
    process.terminate()
    assert process.wait(30) == 143


@pytest.mark.integration
def test_a_worker_that_has_lost_its_parent_ends_at_once() -> None:
    process, said = start(
        f"from fedleak.core.signals import end_with_parent; end_with_parent({os.getppid()}); print('on')"
    )
    assert process.wait(30) == 1
    assert not said


@pytest.mark.integration
def test_a_worker_ends_with_its_parent_even_by_sigkill() -> None:
    process, worker = start(FAMILY)
    process.kill()
    process.wait(30)
    until = time.monotonic() + 30
    while _runs(int(worker)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not _runs(int(worker))


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_signal_that_comes_a_little_later_is_waited_for() -> None:
    with ends_on_signals() as stopping:
        assert not stopping.asked_within(0.01)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        assert stopping.asked_within(30)
        assert stopping.asked == signal.SIGTERM


def test_the_signal_is_passed_on_where_the_thread_did_not_run_in_time() -> None:
    passed: list[int] = []

    def asked_to_end() -> None:
        with ends_on_signals() as stopping:
            stopping.forward = passed.append
            stopping.asked = signal.SIGTERM
            raise Stopped(signal.SIGTERM)

    with pytest.raises(Stopped):
        asked_to_end()
    assert passed == [signal.SIGTERM]
