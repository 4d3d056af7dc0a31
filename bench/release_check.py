"""False findings and power of the release check: ``python -m bench.release_check --out FILE``.

Two tables on simulated rounds of 10 clients with 10,000 numbers each (`bench.release_simulation`): honest trainings, in
which any finding is false, and ten planted faults, each of which must be found in one round (two where noise is used
again).
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import torch
from tqdm import tqdm

from attacks.declared_privacy.release_check import ReleaseCheck, ReleaseEstimate
from attacks.scoring import clopper_pearson
from bench.release_simulation import Fault, System, recording_of, round_of
from protocol.gaussian_budget import gaussian_epsilon
from protocol.seeding import generator_for

EXPECTED: dict[str, set[str]] = {
    "scale off by 5 %": {"noise scale"},
    "a layer without noise": {"noise scale"},
    "per-layer for joint clip": {"clip"},
    "weights clipped for updates": {"clip direction"},
    "one seed for all": {"reuse"},
    "noise reused in two rounds": {"reuse"},
    "Laplace for Gauss": {"law"},
    "noise before the clip": {"order"},
    "float16 rounding": {"resolution"},
    "sensitivity not tied to the clip": {"sensitivity"},
}
"""Checks of which one must find the fault."""
MULTIPLIERS = (1.2,)
"""Noise over clip: epsilon 8 of one send, at delta 1e-5."""
HONEST = (3.0, 1.2, 0.3, 0.1, 0.05, 0.01, 0.0001)
CLIP = (1.2, 0.3, 0.1, 0.05)


def checked(system: System, fault: str, seed: int, rounds: int = 1) -> ReleaseEstimate:
    """Outcome of the check on simulated rounds."""
    generator = generator_for(seed, f"release check {system} {fault}")
    views = [round_of(system, fault, generator)]
    while len(views) < rounds:
        views.append(round_of(system, fault, generator, views[-1]))
    found = ReleaseCheck()(recording_of(views), generator=generator)
    assert isinstance(found, ReleaseEstimate)
    return found


def honest(trials: int) -> Iterator[dict[str, Any]]:
    """False findings by noise and kind of update, and in all."""
    cells = [(multiplier, dense, update) for multiplier in HONEST for dense in (False, True) for update in (0.3, 4.0)]
    false: dict[tuple[float, bool, float], list[bool]] = {cell: [] for cell in cells}
    which: dict[str, int] = {}
    for trial in tqdm(range(trials), desc="honest"):
        cell = multiplier, dense, update = cells[trial % len(cells)]
        system = System(multiplier=multiplier, dense=dense, update=update, epsilon=epsilon_of(multiplier))
        found = checked(system, "", trial, rounds=1 + trial // len(cells) % 2)
        false[cell].append(bool(found.findings.any()))
        for row in found.rows:
            if row["outcome"] == "found":
                which[str(row["check"])] = which.get(str(row["check"]), 0) + 1
    for (multiplier, dense, update), flags in false.items():
        about = {"noise over clip": multiplier, "dense": dense, "update over clip": update}
        yield {**about, "false": sum(flags), "n": len(flags)}
    count = sum(sum(flags) for flags in false.values())
    yield {"all": True, "false": count, "n": trials, "interval": clopper_pearson(count, trials), "by check": which}


def power(trials: int) -> Iterator[dict[str, Any]]:
    """Share of simulations in which each fault is found."""
    for fault in (one for one in get_args(Fault) if one):
        clipping = fault == "per-layer for joint clip"
        for multiplier in CLIP if clipping else MULTIPLIERS:
            update, epsilon, found = 4.0 if clipping else 1.0, epsilon_of(multiplier), 0
            for trial in tqdm(range(trials), desc=f"{fault}, {multiplier}"):
                system = System(multiplier=multiplier, update=update, epsilon=epsilon, dense=trial % 2 == 1)
                rows = checked(system, fault, trial, rounds=2 if "two rounds" in fault else 1).rows
                found += bool({str(row["check"]) for row in rows if row["outcome"] == "found"} & EXPECTED[fault])
            numbers = {"found": found, "n": trials, "power": found / trials, "interval": clopper_pearson(found, trials)}
            yield {"fault": fault, "noise over clip": multiplier, "epsilon": epsilon, **numbers}


def epsilon_of(multiplier: float) -> float:
    """Epsilon of one send, replacing a client's data, at delta 1e-5."""
    return gaussian_epsilon((2 / multiplier) ** 2, 1e-5)


def main() -> None:
    """Prints both tables and leaves them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--honest", type=int, default=1000)
    parser.add_argument("--faulty", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("release_check.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tables: dict[str, list[dict[str, Any]]] = {}
    for name, rows in (("honest", honest(arguments.honest)), ("faults", power(arguments.faulty))):
        for row in rows:
            tables.setdefault(name, []).append(row)
            print(", ".join([name, *(f"{key} {value}" for key, value in row.items())]), flush=True)
    arguments.out.write_text(json.dumps(tables, indent=1))


if __name__ == "__main__":
    main()
