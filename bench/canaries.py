"""``python -m bench.canaries``: lower bounds of epsilon on simulated canaries; a table, coverage and power."""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from fedleak.core.epsilon_bounds import (
    Numbers,
    clopper_pearson_epsilon,
    fixed_abstention,
    fixed_threshold,
    gaussian_bound,
    one_run_epsilon,
    one_run_fdp_epsilon,
)
from fedleak.core.gaussian_budget import declared_precision
from fedleak.core.provenance import versions
from fedleak.core.scoring import clopper_pearson

DELTA = 1e-5
TARGETS = {
    1: ((0, 0.04, 0.23), (0.11, 0.58, 0.81)),
    2: ((0, 0.35, 0.68), (1.00, 1.54, 1.79)),
    4: ((0.45, 1.06, 1.59), (2.87, 3.49, 3.77)),
    8: ((1.40, 2.34, 3.15), (6.68, 7.40, 7.73)),
    20: ((2.97, 4.38, 5.70), (18.2, 19.2, 19.7)),
    100: ((3.28, 4.91, 6.52), (96.6, 98.5, 99.3)),
}
"""By declared epsilon the bounds computed beforehand from expected counts: Clopper-Pearson, Gaussian; by `COUNTS`."""
COUNTS = (200, 1000, 5000)


def mu_of(epsilon: float) -> float:
    """Distance of the two worlds in standard deviations, for which the Gaussian mechanism has an epsilon at `DELTA`."""
    return math.sqrt(declared_precision(epsilon, DELTA))


def audits(mu: float, count: int, size: int, seed: int, *, times: float = 1.0) -> dict[str, Numbers]:
    """Bounds of `size` audits by name, with thresholds for a distance of `mu`, and whether the Gaussian one is given.

    Args:
        mu: declared distance of the two worlds.
        count: number of canaries in an audit; their coins are fair and independent.
        size: number of audits.
        seed: of the draws.
        times: true distance as a multiple of the declared one.
    """
    generator = np.random.default_rng((seed, count, round(1e6 * mu)))
    threshold, abstention = (fixed(mu, count, delta=DELTA) for fixed in (fixed_threshold, fixed_abstention))
    coins = generator.choice([-1.0, 1.0], (size, count))
    scores = coins * times * mu / 2 + generator.standard_normal((size, count))
    plus, above, guessed = coins > 0, scores > threshold, np.abs(scores) > abstention
    positives = plus.sum(1)
    hits, alarms = (above & plus).sum(1), (above & ~plus).sum(1)
    right, guesses = (guessed & (scores * coins > 0)).sum(1), guessed.sum(1)
    pairs, place = np.unique(np.stack([right, guesses], 1), axis=0, return_inverse=True)
    one_run = np.array([one_run_epsilon(int(a), int(b), count, delta=DELTA) for a, b in pairs])
    fdp = one_run_fdp_epsilon(pairs[:, 0], pairs[:, 1], count, delta=DELTA)
    draw = generator.standard_normal(size)
    gaussian = gaussian_bound(scores * coins, np.ones(count), delta=DELTA, draw=draw)
    return {
        "coin": (scores * coins > 0).mean(1),
        "epsilon-cp": clopper_pearson_epsilon(hits, positives, alarms, count - positives, delta=DELTA),
        "epsilon-one-run": one_run[place.reshape(-1)],
        "epsilon-one-run-fdp": fdp[place.reshape(-1)],
        "epsilon-gdp": gaussian.epsilon,
        "given": gaussian.valid.astype(float),
    }


def table(seeds: int) -> list[dict[str, Any]]:
    """Means and medians of the bounds over audits of honest noise, next to the targets."""
    rows = []
    for epsilon, targets in TARGETS.items():
        for place, count in enumerate(COUNTS):
            found = audits(mu_of(epsilon), count, seeds, seed=0)
            row: dict[str, Any] = {"epsilon": epsilon, "canaries": count, "seeds": seeds}
            for name, values in found.items():
                row[name] = float(values.mean())
            for name, target in (("epsilon-cp", targets[0][place]), ("epsilon-gdp", targets[1][place])):
                values = found[name]
                row |= {f"{name} median": float(np.median(values)), f"{name} target": target}
                row[f"{name} error of the mean"] = float(values.std(ddof=1)) / seeds**0.5
            rows.append(row)
            print(_line(row), flush=True)
    return rows


def coverage(size: int, count: int = 200) -> list[dict[str, Any]]:
    """Share of audits of honest noise in which a bound is above the true epsilon, of those that give it."""
    rows = []
    for epsilon in TARGETS:
        found = audits(mu_of(epsilon), count, size, seed=1)
        for name in ("epsilon-cp", "epsilon-one-run", "epsilon-one-run-fdp", "epsilon-gdp"):
            given = found["given"] > 0 if name == "epsilon-gdp" else np.ones(size, dtype=bool)
            over, among = int((found[name] > epsilon)[given].sum()), int(given.sum())
            low, high = clopper_pearson(over, among)
            row = {"epsilon": epsilon, "bound": name, "above": over / among, "low": low, "high": high, "n": among}
            rows.append(row)
            print(f"{name:20s} {' '.join(f'{key} {value:.4g}' for key, value in row.items() if key != 'bound')}")
    return rows


def halved(size: int, count: int = 200, epsilon: float = 8.0) -> dict[str, float]:
    """Share of audits that refute the declared epsilon if the noise has half of the declared standard deviation."""
    found = audits(mu_of(epsilon), count, size, seed=2, times=2.0)
    names = [name for name in found if name.startswith("epsilon")]
    refuted = {name: float((found[name] > epsilon).mean()) for name in names}
    refuted["epsilon-gdp"] = float(((found["epsilon-gdp"] > epsilon) & (found["given"] > 0)).mean())
    print(f"noise halved at epsilon {epsilon:g} with {count} canaries, refuted in:", refuted)
    return {"epsilon": epsilon, "canaries": count, "n": size, **refuted}


def _line(row: dict[str, Any]) -> str:
    cells = [f"epsilon {row['epsilon']:3d}  n {row['canaries']:4d}  coin {row['coin']:.3f}"]
    for name in ("epsilon-cp", "epsilon-gdp"):
        gap = abs(row[name] - row[f"{name} target"])
        within = "ok" if gap <= 0.05 * row[f"{name} target"] + 0.005 else "NOT within 5 %"
        cells.append(
            f"{name} mean {row[name]:.2f}±{row[f'{name} error of the mean']:.2f} median {row[f'{name} median']:.2f} "
            f"target {row[f'{name} target']:.2f} {within}"
        )
    return "  ".join(cells) + f"  one-run {row['epsilon-one-run']:.2f}  f-DP {row['epsilon-one-run-fdp']:.2f}"


def main() -> None:
    """Prints the table, coverage and power, and writes them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--audits", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("bench/out/canaries.json"))
    options = parser.parse_args()
    found = {
        "delta": DELTA,
        "halved": halved(options.audits),
        "coverage": coverage(options.audits),
        "table": table(options.seeds),
        "versions": versions(),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"written: {options.out}")


if __name__ == "__main__":
    main()
