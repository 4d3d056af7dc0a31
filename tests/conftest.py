"""What holds for every test."""

import wandb  # noqa: F401, I001 - first, because it searches all modules that were imported before it, for 0.8 seconds

import ctypes
import functools
import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from lightning import Trainer

from protocol.seeding import KEY_VARIABLE

# What a training draws in secret is drawn the same in every test, in the processes that tests start too.
os.environ.setdefault(KEY_VARIABLE, "5e" * 32)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs a cluster starts processes too."""
    for item in items:
        if item.get_closest_marker("cluster") is not None:
            item.add_marker("integration")


@pytest.fixture(scope="module", autouse=True)
def _freed_memory_goes_back() -> Iterator[None]:
    """After each file: the C library keeps what tests freed, half as much again as a process needs."""
    yield
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


LARGEST_SHARE = 0.05
"""Largest share of the CPU time of all tests without the mark `integration` that one of them may take."""
SHARE_FROM = 1000
"""Fewest tests of which shares are checked."""
_SPENT = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test without the mark `integration` fails where it, or a fixture of it, trains or starts a Python."""
    item.stash[_SPENT] = _cpu_seconds()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["pytest"])  # command lines called with arguments warn of others
        if item.get_closest_marker("integration") is None:
            start = subprocess.Popen.__init__

            def started(process: Any, command: Any, *more: Any, **options: Any) -> None:
                if sys.executable in command:
                    trained()
                start(process, command, *more, **options)

            patch.setattr(subprocess.Popen, "__init__", started)
            patch.setattr(Trainer, "fit", functools.wraps(Trainer.fit)(trained))  # command lines read its signature
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The last report of a test holds its CPU seconds, with those of its fixtures and of processes that it started."""
    report = yield
    if report.when == "teardown":
        marked = item.get_closest_marker("integration") is not None
        report.user_properties.append(("cpu", (_cpu_seconds() - item.stash[_SPENT], marked)))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails a run of many tests in which one without the mark takes too large a share."""
    if _too_slow(_spent(session.config)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Names the ten slowest tests of a run of many."""
    spent = _spent(config)
    if len(spent) < SHARE_FROM:
        return
    whole, small = (sum(one[1] for one in spent if not (unmarked and one[2])) for unmarked in (False, True))
    terminalreporter.section(f"ten slowest tests: {whole:.0f} CPU seconds in all, {small:.0f} without integration")
    for name, seconds, _ in sorted(spent, key=lambda one: -one[1])[:10]:
        terminalreporter.line(f"{seconds:6.2f} s {name}")
    for name in _too_slow(spent):
        terminalreporter.line(
            f"FAILED {name}: more than {LARGEST_SHARE:.0%} of the CPU time of all tests without the mark integration."
            " Make it smaller, or mark it if it trains.",
            red=True,
        )


def _spent(config: pytest.Config) -> list[tuple[str, float, bool]]:
    """Name, CPU seconds and mark of each test that ended."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = [report for found in (reporter.stats if reporter else {}).values() for report in found]
    ended = [report for report in reports if getattr(report, "when", "") == "teardown"]
    return [(report.nodeid, *dict(report.user_properties)["cpu"]) for report in ended]


def _too_slow(spent: list[tuple[str, float, bool]]) -> list[str]:
    small = sum(seconds for _, seconds, marked in spent if not marked)
    slow = [name for name, seconds, marked in spent if not marked and seconds > LARGEST_SHARE * small]
    return slow if len(spent) >= SHARE_FROM else []


def _cpu_seconds() -> float:
    """CPU time of this process and of those that it started and that ended."""
    return sum(os.times()[:4])


def trained(*_: Any, **__: Any) -> None:
    pytest.fail("it trains or starts a process: mark it `integration`", pytrace=True)
