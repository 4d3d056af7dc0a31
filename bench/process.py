"""A process that answers questions, one line each: what is raced runs in an environment of its own."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class AnsweringProcess:
    """Context manager of a process started in the checkout.

    Args:
        name: what it runs, for messages.
        command: the command line; its first entry is an interpreter.
        threads: threads of its matrix products.
        log: file for its standard error.
        setup: the make target that installs the interpreter.

    Raises:
        SystemExit: the interpreter is missing, or the process ends before it has answered.
    """

    def __init__(self, name: str, command: Sequence[str | Path], *, threads: int, log: Path, setup: str) -> None:
        self.name, self.command, self.threads, self.setup = name, command, threads, setup
        self._path = log

    def __enter__(self) -> "AnsweringProcess":
        if not Path(self.command[0]).exists():
            raise SystemExit(f"{self.name} is not set up: run make {self.setup}")
        threads = str(self.threads)
        self._log = self._path.open("w+", encoding="utf-8")
        self._process = subprocess.Popen(
            self.command,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PYTHONPATH": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()

    def ask(self, question: str) -> str:
        """Sends a line and returns the line that answers it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(question, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            self._log.seek(0)
            raise SystemExit(f"{self.name} ended:\n{self._log.read()[-3000:]}")
        return answer.strip()
