"""Plugin of pytest that names the ten slowest tests of a long run, and fails it if a small test is not small."""

import os
from collections.abc import Generator
from typing import Any, NamedTuple

import pytest

LARGEST_SHARE = 0.05
"""Largest share of the CPU time of all tests without the mark `integration` that one of them may take."""
FEWEST = 3000
"""Fewest tests of a long run."""
_BEGIN = pytest.StashKey[float]()


class Spent(NamedTuple):
    """CPU seconds of a test with its fixtures, and whether it is `integration`: then with processes that it started."""

    test: str
    seconds: float
    integration: bool


def too_slow(tests: list[Spent]) -> list[str]:
    """Names of the tests of a long run without the mark that take more than `LARGEST_SHARE`."""
    small = [one for one in tests if not one.integration]
    limit = LARGEST_SHARE * sum(one.seconds for one in small)
    return [one.test for one in small if one.seconds > limit] if len(tests) >= FEWEST else []


def cpu_seconds(*, children: bool = True) -> float:
    """CPU time of this process, and of those that it started and that ended."""
    return sum(os.times()[: 4 if children else 2])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_BEGIN] = _clock(item)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The last report of a test says what it took."""
    report = yield
    if report.when == "teardown":
        spent = _clock(item) - item.stash[_BEGIN]
        report.user_properties.append(("spent", (item.nodeid, spent, _is_integration(item))))
    return report


def _clock(item: pytest.Item) -> float:
    """A test without the mark starts no process; idle workers of an earlier one may end in it."""
    return cpu_seconds(children=_is_integration(item))


def _is_integration(item: pytest.Item) -> bool:
    return item.get_closest_marker("integration") is not None


def pytest_sessionfinish(session: pytest.Session) -> None:
    if too_slow(_reported(session.config)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    tests = _reported(config)
    if len(tests) < FEWEST:
        return
    whole = sum(one.seconds for one in tests)
    small = sum(one.seconds for one in tests if not one.integration)
    terminalreporter.section(f"ten slowest tests: {whole:.0f} CPU seconds in all, {small:.0f} without integration")
    for one in sorted(tests, key=lambda one: -one.seconds)[:10]:
        terminalreporter.line(f"{one.seconds:6.2f} s {one.test}")
    for name in too_slow(tests):
        share = f"more than {LARGEST_SHARE:.0%} of the CPU time of all tests without the mark integration"
        terminalreporter.line(f"FAILED {name}: {share}. Make it smaller, or mark it if it trains.", red=True)


def _reported(config: pytest.Config) -> list[Spent]:
    """Every test that ended, where reports are collected: in the process that xdist's workers report to."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = [report for found in (reporter.stats if reporter else {}).values() for report in found]
    ended = [report for report in reports if getattr(report, "when", "") == "teardown"]
    return [Spent(*dict(report.user_properties)["spent"]) for report in ended]
