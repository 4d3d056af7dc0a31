"""``make bench``: our engine, our attacks and the recorder, each beside what it is measured against."""

import argparse
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from bench.attacks import attack_times
from bench.engine import job_j2, job_j3
from bench.figure import draw_ratios
from bench.manipulation import manipulation_times
from bench.measure import Measure
from bench.memory import memory_while_attacking
from bench.processes import process_times
from bench.reading import reading_back
from bench.recording import recording_times
from reports.provenance import hardware, versions

OUT = Path("bench/out")


def main() -> None:
    """Measures, prints ratios to each job's first piece, writes bench.csv and bench.svg."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--jobs", nargs="+", default=["J2", "J3", "attack", "recording", "reading", "processes", "memory"]
    )
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    jobs: dict[str, Callable[[], list[Measure]]] = {
        "J2": lambda: job_j2(options.repeats),
        "J3": lambda: job_j3(options.repeats),
        "attack": lambda: attack_times(8),
        "recording": lambda: recording_times(options.repeats),
        "reading": reading_back,
        "processes": lambda: process_times(options.repeats),
        "memory": memory_while_attacking,
        "manipulation": manipulation_times,
    }
    rows: list[dict[str, object]] = []
    for name in options.jobs:
        measures = jobs[name]()
        rows += [{**vars(m), "ratio": measures[0].value / m.value} for m in measures]
    frame = pd.DataFrame(rows).assign(hardware=hardware(), **versions())
    OUT.mkdir(parents=True, exist_ok=True)
    frame.to_csv(OUT / "bench.csv", index=False)
    draw_ratios(frame, OUT / "bench.svg")
    print(frame[["job", "what", "value", "unit", "ratio"]].to_string(index=False))


if __name__ == "__main__":
    main()
