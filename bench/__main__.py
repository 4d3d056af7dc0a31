"""``make bench``: our engine, our attacks and the recorder, each beside what it is measured against."""

import argparse
import functools
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from bench.attacks import attack_times
from bench.figure import draw_ratios
from bench.manipulation import manipulation_times
from bench.measure import Measure
from bench.memory import memory_while_attacking
from bench.peers.race import OURS, PLAIN, race
from bench.recording import recording_times
from bench.scaling import scaling
from reports.provenance import hardware, versions

OUT = Path("bench/out")
DEFAULT = ["J1", "J2", "J3", "J3r", "attack", "recording", "memory", "scaling"]


def main() -> None:
    """Measures, prints ratios to each job's first piece, writes bench.csv and bench.svg."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", nargs="+", default=DEFAULT)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    jobs: dict[str, Callable[[], list[Measure]]] = {
        **{name: functools.partial(_rounds, name, options.repeats) for name in ("J1", "J2", "J3", "J3r")},
        "attack": lambda: attack_times(8),
        "recording": lambda: recording_times(options.repeats),
        "memory": memory_while_attacking,
        "scaling": scaling,
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


def _rounds(job: str, repeats: int) -> list[Measure]:
    """A round of ours beside a plain loop's, and the share of the machine's matrix-multiply peak."""
    measures = []
    for result in race(job, [PLAIN, OURS], repeats):
        spread = min(result.seconds), max(result.seconds)
        measures.append(Measure(job, result.name, result.median, spread=spread))
        measures.append(Measure(f"{job}, share of peak", result.name, result.share, "of peak"))
    return sorted(measures, key=lambda measure: measure.job)


if __name__ == "__main__":
    main()
