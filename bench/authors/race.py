"""Runs the two sides of a contest in processes of their own: compares their results, then times them in turns."""

import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from bench.authors.contest import Comparison, Contest
from bench.authors.host import Arrays, load
from bench.process import ROOT, AnsweringProcess


@dataclass(frozen=True)
class Side:
    """Measurements of one side.

    Attributes:
        seconds: of each turn, for all victims.
        loaded: peak of memory in MiB before the first attack, with libraries and inputs.
        peak: peak of memory in MiB.
    """

    seconds: list[float]
    loaded: float
    peak: float


@dataclass(frozen=True)
class Result:
    """A contest with its measurements."""

    contest: Contest
    victims: int
    comparisons: list[Comparison]
    ours: Side
    theirs: Side

    @property
    def equal(self) -> bool:
        """Whether all numbers agree."""
        return all(one.equal for one in self.comparisons)

    def row(self) -> dict[str, object]:
        """The contest as a row of a table; seconds are medians per victim."""
        ours, theirs = (statistics.median(side.seconds) / self.victims for side in (self.ours, self.theirs))
        return {
            "contest": self.contest.name,
            "victims": self.victims,
            "n": len(self.ours.seconds),
            "results": "equal" if self.equal else "different",
            "compared": "; ".join(map(str, self.comparisons)),
            "ours_s": ours,
            "theirs_s": theirs,
            "ratio": theirs / ours,
            "least_ratio": min(self.theirs.seconds) / max(self.ours.seconds),
            "most_ratio": max(self.theirs.seconds) / min(self.ours.seconds),
            "ours_mib": self.ours.peak,
            "ours_loaded_mib": self.ours.loaded,
            "theirs_mib": self.theirs.peak,
            "theirs_loaded_mib": self.theirs.loaded,
        }


def race(contest: Contest, *, repeats: int | None = None, threads: int = 1) -> Result:
    """Compares the results of both sides, then measures them in turns; the run that is compared is not counted."""
    inputs, truth = contest.write()
    victims = int(inputs["victims"])
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = Path(place)
        np.savez(folder / "inputs.npz", **inputs)  # type: ignore[arg-type]
        python = ROOT / ".peers" / contest.authors / "bin" / "python"
        sides = [
            stack.enter_context(_Attacker(name, [run, "-m", "bench.authors.host", module], folder, threads))
            for name, run, module in (
                ("ours", Path(sys.executable), type(contest).__module__),
                ("theirs", python, contest.theirs),
            )
        ]
        comparisons = contest.compare(truth, *(side.estimates() for side in sides))
        print(f"{contest.name}: {'; '.join(map(str, comparisons))}")
        turns = contest.repeats if repeats is None else repeats
        for _ in tqdm(range(turns), desc=contest.name, unit="turn"):
            for side in sides:
                side.measure()
        return Result(contest, victims, comparisons, *(side.measured() for side in sides))


class _Attacker(AnsweringProcess):
    def __init__(self, name: str, command: list[str | Path], folder: Path, threads: int) -> None:
        super().__init__(
            name,
            [*command, folder / "inputs.npz"],
            threads=threads,
            log=folder / f"{name}.log",
            setup="bench-attacks",
        )
        self.output, self.seconds, self.answer = folder / f"{name}.npz", list[float](), dict[str, float]()

    def __enter__(self) -> "_Attacker":
        super().__enter__()
        return self

    def estimates(self) -> Arrays:
        """Attacks once and returns what was found."""
        self.answer = json.loads(self.ask(str(self.output)))
        return load(self.output)

    def measure(self) -> None:
        self.answer = json.loads(self.ask(str(self.output)))
        self.seconds.append(self.answer["seconds"])

    def measured(self) -> Side:
        return Side(self.seconds, self.answer["loaded"], self.answer["peak"])
