"""``make bench``: the engine, the attacks and the recorder, each with a reference."""

import argparse
import functools
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from bench.attacks import attack_times
from bench.figure import draw_ratios, draw_scaling
from bench.manipulation import manipulation_times
from bench.measure import Measure
from bench.membership import membership_times
from bench.memory import memory_while_attacking
from bench.peers.race import OURS, PLAIN, race
from bench.processes import process_times
from bench.reading import reading_back
from bench.recording import recording_times
from bench.scaling import scaling
from fedleak.core.hardware import hardware
from fedleak.core.provenance import versions

OUT = Path("bench/out")
DEFAULT = ["J1", "J2", "J3", "J3r", "attack", "recording", "reading", "processes", "memory", "scaling"]


def main() -> None:
    """Measures job by job, writes a CSV file for each, prints and draws all results as ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", nargs="+", default=DEFAULT)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    jobs: dict[str, Callable[[], list[Measure]]] = {
        **{name: functools.partial(_rounds, name, options.repeats) for name in ("J1", "J2", "J3", "J3r")},
        "attack": lambda: attack_times(8),
        "recording": lambda: recording_times(options.repeats),
        "reading": reading_back,
        "processes": lambda: process_times(options.repeats),
        "memory": memory_while_attacking,
        "scaling": scaling,
        "manipulation": manipulation_times,
        "membership": membership_times,
    }
    OUT.mkdir(parents=True, exist_ok=True)
    for name in options.jobs:
        _table(jobs[name]()).to_csv(OUT / f"bench-{name}.csv", index=False)
    frame = pd.concat([pd.read_csv(path) for path in sorted(OUT.glob("bench-*.csv"))])
    grows = frame["job"].str.startswith("clients in a round")
    draw_ratios(frame[~grows], OUT / "bench.svg")
    if grows.any():
        draw_scaling(frame[grows], OUT / "scaling.svg")
    print(frame[["job", "what", "value", "unit", "ratio", "spread", "share_of_peak"]].to_string(index=False))


def _table(measures: list[Measure]) -> pd.DataFrame:
    """One row per piece, with its ratio to its job's first."""
    first = {measure.job: measure.value for measure in reversed(measures)}
    rows = [{**vars(measure), "ratio": first[measure.job] / measure.value} for measure in measures]
    return pd.DataFrame(rows).assign(hardware=hardware(), **versions())


def _rounds(job: str, repeats: int) -> list[Measure]:
    """A round of fedleak and one of a plain loop, and their share of the machine's matrix-multiply peak."""
    return [
        Measure(job, result.name, result.median, "s", (min(result.seconds), max(result.seconds)), result.share)
        for result in race(job, [PLAIN, *OURS], repeats)
    ]


if __name__ == "__main__":
    main()
