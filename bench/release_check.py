"""False findings and power of the release check: ``python -m bench.release_check --out FILE``.

Two tables on simulated rounds of 10 clients with 10,000 numbers each (`bench.release_simulation`): honest trainings, in
which any finding is false, and ten planted faults, each of which must be found in one round (two where noise is used
again). A third on single secure sums over 10 clients, of 100,000 numbers: all add noise, or one or three add none.
"""

import argparse
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from tqdm import tqdm

from bench.release_simulation import Fault, System, recording_of, round_of, sum_of
from fedleak.attacks.declared_privacy.missing_noise import whole_numbers
from fedleak.attacks.declared_privacy.release_check import ReleaseCheck, ReleaseEstimate
from fedleak.core.gaussian_budget import gaussian_epsilon
from fedleak.core.scoring import clopper_pearson
from fedleak.core.seeding import generator_for

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
SUMS = (1.2, 0.38, 0.1, 0.03)
"""Noise of a participant over its clip; 0.38 gives a sum over 10 the epsilon 8."""


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


def sums(silent: int, trials: int) -> Iterator[dict[str, Any]]:
    """Secure sums of 10 clients of which `silent` add no noise: share that is found, and the estimated number."""
    cells = [(multiplier, dense) for multiplier in SUMS for dense in (False, True)]
    found: dict[tuple[float, bool], list[dict[str, Any]]] = {cell: [] for cell in cells}
    for trial in tqdm(range(trials), desc=f"sums, {silent} silent"):
        multiplier, dense = cell = cells[trial % len(cells)]
        system = System(multiplier=multiplier, dense=dense, update=4.0)
        generator = generator_for(trial, f"release check of sums {system} {silent}")
        estimate = ReleaseCheck()(recording_of([sum_of(system, silent, generator)]), generator=generator)
        assert isinstance(estimate, ReleaseEstimate)
        (row,) = [one for one in estimate.rows if one["check"] == "participants"]
        checks = sorted({str(one["check"]) for one in estimate.rows if one["outcome"] == "found"})
        found[cell].append({**row, "checks": checks, "truth": silent})
    for (multiplier, dense), rows in found.items():
        yield {"silent": silent, "noise over clip": multiplier, "dense": dense, **_counted(rows)}
    whole = [row for rows in found.values() for row in rows]
    which = {check: sum(check in row["checks"] for row in whole) for row in whole for check in row["checks"]}
    yield {"silent": silent, "all": True, **_counted(whole), "by check": which}


def _counted(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How often participants without noise are found, not found or not checked, and any finding is made."""
    outcomes = [row["outcome"] for row in rows]
    numbers = np.array([row["measured"] for row in rows if row["outcome"] == "found"])
    known = [row for row in rows if row["low"] is not None]
    return {
        "n": len(rows),
        **{outcome: outcomes.count(outcome) for outcome in ("found", "passed", "not checked")},
        "any finding": sum(bool(row["checks"]) for row in rows),
        "interval": clopper_pearson(outcomes.count("found"), len(rows)),
        "estimate": [round(float(np.quantile(numbers, q)), 3) for q in (0, 0.5, 1)] if len(numbers) else None,
        "only number": sum(whole_numbers(row["low"], row["high"]) == range(k := row["truth"], k + 1) for row in known),
        "covered": sum(row["low"] <= row["truth"] <= row["high"] for row in known),
    }


def epsilon_of(multiplier: float) -> float:
    """Epsilon of one send, replacing a client's data, at delta 1e-5."""
    return gaussian_epsilon((2 / multiplier) ** 2, 1e-5)


def main() -> None:
    """Prints both tables and leaves them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--honest", type=int, default=1000, help="0 for none, as with the others")
    parser.add_argument("--faulty", type=int, default=200)
    parser.add_argument("--sums", type=int, default=1000, help="honest secure sums, and a fifth of it with each fault")
    parser.add_argument("--out", type=Path, default=Path("release_check.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tables: dict[str, list[dict[str, Any]]] = {}
    of_sums = chain(sums(0, arguments.sums), *(sums(silent, arguments.sums // 5) for silent in (1, 3)))
    every = {"honest": honest(arguments.honest), "faults": power(arguments.faulty), "sums": of_sums}
    wanted = dict(zip(every, (arguments.honest, arguments.faulty, arguments.sums), strict=True))
    for name, rows in ((name, rows) for name, rows in every.items() if wanted[name]):
        for row in rows:
            tables.setdefault(name, []).append(row)
            print(", ".join([name, *(f"{key} {value}" for key, value in row.items())]), flush=True)
    arguments.out.write_text(json.dumps(tables, indent=1))


if __name__ == "__main__":
    main()
