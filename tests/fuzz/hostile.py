"""``python -m tests.fuzz.hostile``: 300 hostile files, and what was opened, imported or asked for because of them."""

import argparse
import collections
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tests.places import ROOT

COUNT = 300
_AT_ONCE = 75
"""Tasks of a child; it takes ten seconds to start."""


def answers(seed: int, numbers: Sequence[int], extra: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """What a child says of each harmless task, control and hostile task."""
    command = [sys.executable, "-m", "tests.fuzz.watched_child", str(seed), ",".join(map(str, numbers)), *extra]
    places = os.pathsep.join([str(ROOT), str(ROOT / "recorder"), str(ROOT / "guard")])
    own = {**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(
        command, cwd=ROOT, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("{"):
                yield json.loads(line)
        assert child.stderr is not None
        said = child.stderr.read()
    if child.returncode:
        raise RuntimeError(f"the child ended with {child.returncode}: {said[-2000:]}")


def table(found: Sequence[dict[str, Any]]) -> str:
    """Counts by kind of file."""
    columns = ("refused", "accepted", "traceback", "memory", "slow")
    events = ("network", "file", "bait", "import", "library", "process", "pickle")
    rows = collections.defaultdict(collections.Counter)  # type: ignore[var-annotated]
    for answer in found:
        for name in (answer["name"], "all"):
            rows[name][answer["outcome"]] += 1
            rows[name].update({kind for kind, _ in answer["found"]})
    width = max(map(len, rows))
    lines = ["".join([" " * width, *(f"  {name}" for name in (*columns, *events))])]
    for name, counts in rows.items():
        lines.append(name.ljust(width) + "".join(f"  {counts[one]:{len(one)}d}" for one in (*columns, *events)))
    return "\n".join(lines)


def main() -> int:
    """The command line; returns the exit status: 1 if anything was seen that no file may do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument(
        "--out", type=Path, default=Path("runs/fuzz"), help="folder of hostile.jsonl, which is extended"
    )
    chosen = parser.parse_args()
    numbers = list(range(chosen.first, chosen.first + chosen.count))
    chosen.out.mkdir(parents=True, exist_ok=True)
    found = []
    with tqdm(total=len(numbers), unit="file") as bar, (chosen.out / "hostile.jsonl").open("a") as file:
        for begin in range(0, len(numbers), _AT_ONCE):
            for answer in answers(chosen.seed, numbers[begin : begin + _AT_ONCE]):
                if isinstance(answer["number"], int):
                    found.append(answer)
                    file.write(json.dumps(answer) + "\n")
                    file.flush()
                    bar.update()
    print(table(found))
    bad = [answer for answer in found if answer["found"] or answer["outcome"] not in ("refused", "accepted")]
    for answer in bad:
        print(json.dumps(answer))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
