"""What holds for every test."""

import wandb  # noqa: F401, I001 - first, because it searches all modules that were imported before it, for 0.8 seconds

import ctypes
import functools
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from lightning import Trainer

from fedleak.core.seeding import KEY_VARIABLE

pytest_plugins = ["tests.slowest"]
# What a training draws in secret is drawn the same in every test, in the processes that tests start too.
os.environ.setdefault(KEY_VARIABLE, "5e" * 32)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs a cluster starts processes too."""
    for item in items:
        if item.get_closest_marker("cluster") is not None:
            item.add_marker("integration")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported and collected stays until the end: looking through it for garbage took a sixth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _freed_memory_goes_back() -> Iterator[None]:
    """After each file: the C library keeps what tests freed, half as much again as a process needs."""
    yield
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of runs have no figures, which take longer than a small training."""
    monkeypatch.setattr("fedleak.reports.write_page.report_figures", lambda *_, **__: [])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test without the mark `integration` fails where it, or a fixture of it, trains or starts a Python."""
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


def trained(*_: Any, **__: Any) -> None:
    pytest.fail("it trains or starts a process: mark it `integration`", pytrace=True)
