"""Process that makes changes in the checkout that it runs in, one after the other, and runs tests on each.

It reads a task, as JSON, from each line of its input, and answers each with a line of JSON. Tests run in forks of this
process, so that what they import of other packages is imported once. A test that fails without the change too, as one
that needs the history of the checkout, does not count.
"""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.mutants.changes import Change

_MEMORY = 12 << 30
"""Address space of the tests of a change, in bytes."""


class _FirstFailure:
    """Plugin that keeps the name of the test that failed."""

    name: str | None = None

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and self.name is None:
            self.name = report.nodeid


def main() -> None:
    import lightning  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    import seaborn  # noqa: F401
    import sklearn.ensemble  # noqa: F401
    import timm  # noqa: F401
    import torchmetrics  # noqa: F401

    passing, failing = set[str](), set[str]()
    for line in sys.stdin:
        task = json.loads(line)
        fields = task["change"]
        change = Change(**{**fields, "span": tuple(fields["span"])})
        path = Path(change.file)
        whole, begin = path.read_bytes(), time.monotonic()
        while True:
            path.write_bytes(change.applied(whole))
            try:
                outcome, by = _tested([test for test in task["tests"] if test not in failing], limit=task["limit"])
            finally:
                path.write_bytes(whole)
            if by is None or by not in task["tests"] or by in passing:
                break
            (passing if _tested([by], limit=task["limit"])[1] is None else failing).add(by)
        print(json.dumps({"outcome": outcome, "by": by, "seconds": time.monotonic() - begin}), flush=True)


def _tested(tests: list[str], *, limit: float) -> tuple[str, str | None]:
    """Outcome and the test that failed; a test that does not end catches the change too."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        import pytest

        first = _FirstFailure()
        ended = pytest.main(["-x", "-p", "no:cacheprovider", "-p", "no:xdist", *tests], plugins=[first])
        os.write(writer, (first.name or "").encode())
        os._exit(int(ended))
    os.close(writer)
    end, status = time.monotonic() + limit, None
    while status is None and time.monotonic() < end:
        pid, ending = os.waitpid(child, os.WNOHANG)
        status = os.waitstatus_to_exitcode(ending) if pid else None
        time.sleep(0.05)
    if status is None:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with os.fdopen(reader) as answer:
        by = "time" if status is None else answer.read() or f"status {status}"
    return ("survived", None) if status == 0 else ("caught", by)


if __name__ == "__main__":
    main()
