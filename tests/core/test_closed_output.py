"""Output without a reader ends a command silently; other broken pipes are errors."""

import os
import subprocess
import sys

import pytest

from fedleak.core.closed_output import silent_without_reader

PRINTS = """
from fedleak.core.closed_output import silent_without_reader
with silent_without_reader():
    {work}
    print("more")
"""


def run_without_reader(work: str) -> tuple[int, str]:
    """Exit status and errors of a process whose output nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    code = PRINTS.format(work=work)
    done = subprocess.run([sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    return done.returncode, done.stderr


@pytest.mark.integration
@pytest.mark.parametrize("work", ["pass", "print('x' * 100000)", "raise SystemExit(0)"])
def test_output_without_a_reader_is_silent(work: str) -> None:
    status, errors = run_without_reader("print('first'); " + work)
    assert (status, errors) == (141, "")


def test_another_broken_pipe_is_an_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError), silent_without_reader():
        os.write(writing, b"x")
    os.close(writing)
