"""Mutants of every target by number, and a table of how they ended."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.children import FAILURES, KINDS, Answer, answers
from tests.fuzz.targets import Target


class Table:
    """Counts by target and kind; what failed is kept with seed and number, from which it can be made again.

    Args:
        failures: file to which failures are appended, one JSON object in a line; None to keep them only here.
    """

    def __init__(self, failures: Path | None = None) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self.failed: list[str] = []
        self._file = failures

    def run(self, target: Target, *, seed: int, numbers: Sequence[int], batch: int = 60) -> None:
        """Reads some mutants of a target.

        Args:
            target: what reads.
            seed: of the draws.
            numbers: of the mutants.
            batch: mutants of a child.
        """
        mutants = [target.mutant(seed, number) for number in numbers]
        assert target.whole
        found = answers([target.task(files) for files, _ in mutants], seconds=target.seconds, batch=batch)
        for number, (_, said), answer in zip(numbers, mutants, found, strict=True):
            self._add(target, seed, number, said, answer)

    def _add(self, target: Target, seed: int, number: int, said: str, answer: Answer) -> None:
        self.counts.setdefault(target.name, Counter())[answer.kind] += 1
        if answer.kind in FAILURES:
            entry = {"target": target.name, "seed": seed, "number": number, "change": said, **vars(answer)}
            self.failed.append(json.dumps(entry))
            if self._file is not None:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                with self._file.open("a") as file:
                    file.write(self.failed[-1] + "\n")

    @property
    def mutants(self) -> int:
        """How many were read."""
        return sum(counts.total() for counts in self.counts.values())

    def text(self) -> str:
        """The table, with a line for all targets together."""
        total = sum(self.counts.values(), Counter[str]())
        width = max(len(name) for name in (*self.counts, "all"))
        lines = [" " * width + "".join(f"  {kind}" for kind in KINDS)]
        for name, counts in (*self.counts.items(), ("all", total)):
            lines.append(name.ljust(width) + "".join(f"  {counts[kind]:{len(kind)}d}" for kind in KINDS))
        return "\n".join(lines)
