"""Plugin of pytest that writes which functions of the checkout each test calls, and its CPU seconds.

``pytest -p tests.mutants.calls``; the variable ``CALLS`` names the file, one line of JSON a test.
"""

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

import pytest

from tests.slowest import cpu_seconds

ROOT = f"{Path(__file__).resolve().parents[2]}/"
_OURS = tuple(
    f"{ROOT}{room}/" for room in ("attacks", "client", "defenses", "evaluation", "guard", "recorder", "recordings")
)
_places: dict[CodeType, tuple[str, int] | None] = {}
_called: set[tuple[str, int]] = set()


def _trace(frame: FrameType, event: str, argument: object) -> None:
    code = frame.f_code
    if code not in _places:
        ours = code.co_filename.startswith(_OURS)
        _places[code] = (code.co_filename.removeprefix(ROOT), code.co_firstlineno) if ours else None
    place = _places[code]
    if place is not None:
        _called.add(place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Writes a line after each test: its name, its seconds, and the functions called by file and first line."""
    _called.clear()
    begin = cpu_seconds()
    threading.settrace(_trace)
    sys.settrace(_trace)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        threading.settrace(None)
        worker = os.environ.get("PYTEST_XDIST_WORKER", "")
        with Path(f"{os.environ['CALLS']}{worker}").open("a", encoding="utf-8") as file:
            file.write(json.dumps([item.nodeid, cpu_seconds() - begin, sorted(_called)]) + "\n")
