"""``python -m tests.mutants``: the share of a random sample of small changes of the source that the tests catch.

First every test runs once, and the functions that it calls are written down. Then each change is made in a copy of the
checkout, in which the tests that call the changed function run until one fails or their CPU time is spent: first those
of the file's own tests, and the cheapest first.
"""

import argparse
import dataclasses
import itertools
import json
import os
import queue
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import binomtest
from tqdm import tqdm

from tests.mutants.changes import Change, sample
from tests.places import ROOT, copy_checkout

Covering = Mapping[tuple[str, int], list[tuple[str, float]]]
"""Tests that call a function, with their CPU seconds, by its file and first line."""


def main() -> int:
    """The command line; a sample that was interrupted goes on where it ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="number of changes (300)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample (0)")
    parser.add_argument("--seconds", type=float, default=30, help="CPU seconds of tests for each change (30)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes (one a core)")
    parser.add_argument("--out", type=Path, default=Path("runs/mutants"), help="folder of the results (runs/mutants)")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    covering = _covering(chosen.out / "calls.jsonl", chosen.jobs)
    results = chosen.out / f"results-{chosen.seed}.jsonl"
    done = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    known = {(one["file"], *one["span"], one["after"]) for one in done}
    changes = [one for one in sample(ROOT, chosen.count, chosen.seed) if (one.file, *one.span, one.after) not in known]
    with tempfile.TemporaryDirectory() as folder, results.open("a") as file:
        for result in _outcomes(changes, covering, seconds=chosen.seconds, jobs=chosen.jobs, folder=Path(folder)):
            file.write(json.dumps(result) + "\n")
            file.flush()
            done.append(result)
    print(_summary(pd.DataFrame(done)))
    return 0


def _covering(path: Path, jobs: int) -> Covering:
    """Tests of each function, the cheapest first; runs all tests if the file is not there."""
    if not path.exists():
        part = path.with_name("part-")
        environment = os.environ | {"CALLS": str(part.resolve()), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "pytest", "-n", str(jobs), "-p", "tests.mutants.calls", "--dist", "worksteal"]
        subprocess.run(command, cwd=ROOT, env=environment, check=False)
        path.write_text("".join(one.read_text() for one in sorted(part.parent.glob("part-*"))))
    found = defaultdict(list)
    for line in path.read_text().splitlines():
        test, seconds, called = json.loads(line)
        for file, function in called:
            found[file, function].append((test, seconds))
    return {place: sorted(tests, key=lambda one: one[1]) for place, tests in found.items()}


def _outcomes(
    changes: list[Change], covering: Covering, *, seconds: float, jobs: int, folder: Path
) -> Iterator[dict[str, Any]]:
    """What became of each change: ``caught``, ``survived``, or ``uncalled`` if no test calls its function."""
    idle: queue.SimpleQueue[subprocess.Popen[str]] = queue.SimpleQueue()
    for number in range(jobs):
        idle.put(_worker(folder / str(number)))

    def outcome(change: Change) -> dict[str, Any]:
        covered = covering.get((change.file, change.function), [])
        tests = _affordable(_own_first(change.file, covered), seconds)
        found = {"outcome": "uncalled", "by": None, "seconds": 0.0}
        if tests:
            worker = idle.get()
            assert worker.stdin is not None
            assert worker.stdout is not None
            task = {"change": dataclasses.asdict(change), "tests": tests, "limit": 120 + 6 * seconds}
            print(json.dumps(task), file=worker.stdin, flush=True)
            found = json.loads(worker.stdout.readline())
            idle.put(worker)
        return {**dataclasses.asdict(change), **found, "tests": len(tests), "of": len(covered)}

    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(outcome, change) for change in changes]
        for future in tqdm(as_completed(futures), total=len(changes), unit="mutant"):
            yield future.result()
    for _ in range(jobs):
        worker = idle.get()
        assert worker.stdin is not None
        worker.stdin.close()
        worker.wait()


def _worker(copy: Path) -> subprocess.Popen[str]:
    """A process in a copy of the checkout, see `tests.mutants.worker`."""
    copy_checkout(copy)
    if (ROOT.parent / "shared").is_dir() and not (copy.parent / "shared").exists():
        (copy.parent / "shared").symlink_to(ROOT.parent / "shared")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.mutants.worker"],
        cwd=copy,
        env=environment | {"OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _own_first(file: str, tests: list[tuple[str, float]]) -> list[tuple[str, float]]:
    below = Path(file.removeprefix("fedleak/"))
    own = f"tests/{below.parent / f'test_{below.name}'}::"
    return sorted(tests, key=lambda one: (not one[0].startswith(own), one[1]))


def _affordable(tests: list[tuple[str, float]], seconds: float) -> list[str]:
    """Tests from the first to the last that ends within some seconds; the first always."""
    ends = itertools.accumulate(one[1] for one in tests)
    last = max(1, sum(end <= seconds for end in ends))
    return [test for test, _ in tests[:last]]


def _summary(table: pd.DataFrame) -> str:
    table["room"] = table["file"].str.extract(r"^(fedleak/client/engine|fedleak/[^/]+|[^/]+)")
    parts = [
        pd.crosstab(table[column], table["outcome"], margins=True).to_string() + "\n" for column in ("room", "kind")
    ]
    caught, count = int((table["outcome"] == "caught").sum()), len(table)
    interval = binomtest(caught, count).proportion_ci(method="wilson")
    parts.append(f"{caught} of {count} caught: {caught / count:.3f} ({interval.low:.3f} to {interval.high:.3f})")
    for one in table[table["outcome"] != "caught"].sort_values(["file", "line"]).itertuples():
        parts.append(f"{one.file}:{one.line}: {one.before} -> {one.after} ({one.outcome}, {one.tests} tests)")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
