"""How often a gate of ten attacks decides right, for systems at its limit and 0.1 to each side of it.

python -m bench.gate --audits 200
"""

import argparse
from collections import Counter

import numpy as np
from tqdm import tqdm

from evaluation.gate import gate
from evaluation.runner import Evaluation
from evaluation.scores import AttackInfo, concat, score_table
from evaluation.summary import summarise

LIMIT, ATTACKS = 0.5, 10
WORLDS = {"at the limit": (0.5, 0.12), "0.1 above": (0.6, 0.1), "0.1 below": (0.4, 0.1)}
"""Mean and standard deviation of the clients' values."""


def outcome(values: "np.ndarray[tuple[int, int], np.dtype[np.float64]]") -> str:
    """Verdict on ``(attacks, clients)`` values of AUC."""
    names = [f"attack {number}" for number in range(len(values))]
    evaluation = Evaluation(lines={name: AttackInfo(role="ours", family="recommendation") for name in names})
    clients = np.arange(values.shape[1])
    tables = [
        score_table(name, {"auc": own}, setting={"data": "d"}, seed=0, victims=clients)
        for name, own in zip(names, values, strict=True)
    ]
    evaluation.scores = concat(tables)
    return gate({"auc": LIMIT}, [])(summarise(evaluation), evaluation)[0].verdict


def shares(world: str, clients: int, correlation: float, audits: int, seed: int = 0) -> dict[str, float]:
    """Share of each verdict over simulated audits."""
    generator, (mean, deviation) = np.random.default_rng(seed), WORLDS[world]
    found: Counter[str] = Counter()
    for _ in range(audits):
        joint, own = generator.normal(size=(1, clients)), generator.normal(size=(ATTACKS, clients))
        noise = np.sqrt(correlation) * joint + np.sqrt(1 - correlation) * own
        found[outcome(np.clip(mean + deviation * noise, 0, 1))] += 1
    return {verdict: count / audits for verdict, count in found.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--audits", type=int, default=200)
    audits = parser.parse_args().audits
    print(f"{'clients':>8}{'correlation':>12}  {'system':14}{'failed':>8}{'undecided':>11}{'ok':>8}")
    for clients, correlation in tqdm([(n, c) for n in (5, 8, 20) for c in (0.0, 0.7)]):
        for world in WORLDS:
            share = shares(world, clients, correlation, audits)
            numbers = [share.get(verdict, 0.0) for verdict in ("failed", "undecided", "ok")]
            tqdm.write(f"{clients:>8}{correlation:>12}  {world:14}{numbers[0]:8.3f}{numbers[1]:11.3f}{numbers[2]:8.3f}")
