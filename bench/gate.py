"""How often a gate decides wrongly, and how often its intervals hold, for the laws that clients' scores have.

python -m bench.gate verdicts --audits 2000
python -m bench.gate coverage --samples 2000
"""

import argparse
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm import tqdm

from fedleak.evaluation.gate import Outcome, gate
from fedleak.evaluation.limited_value import hidden
from fedleak.evaluation.limits import FEWEST, Limit
from fedleak.evaluation.mean_interval import MeanOverClients
from fedleak.evaluation.paired_means import mean_over_clients
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import AttackInfo, concat, score_table
from fedleak.evaluation.summary import summarise

Values = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Values]

CLIENTS = (5, 8, 12, 20, 40)
ATTACKS = (1, 10)
CORRELATION = 0.7
"""Correlation of the attacks' values of a client, where it is not 0."""


@dataclass(frozen=True)
class Law:
    """Distribution of a client's score in [0, 1].

    Attributes:
        draw: draws of a shape.
        mean: its mean.
        least: value of an attack that infers nothing.
    """

    draw: Draw
    mean: float
    least: float = 0.0


def two_points(share: float, least: float = 0.0) -> Law:
    """1 for a share of the clients, and `least` for the others."""
    return Law(
        lambda random, shape: np.where(random.random(shape) < share, 1.0, least),
        least + (1 - least) * share,
        least,
    )


def normal(mean: float, deviation: float) -> Law:
    return Law(lambda random, shape: np.clip(random.normal(mean, deviation, shape), 0, 1), mean)


def narrow_with_exposed(random: np.random.Generator, shape: tuple[int, ...]) -> Values:
    """A tenth of the clients at 1, the others narrowly about a half."""
    others = np.clip(random.normal(0.5, 0.03, shape), 0, 1)
    return np.where(random.random(shape) < 0.1, 1.0, others)


LAWS: Mapping[str, Law] = {
    "all equal to 1": two_points(1.0),
    "one in ten exposed": two_points(0.1),
    "one in twenty exposed": two_points(0.05),
    "coin": two_points(0.5),
    "nine in ten exposed": two_points(0.9),
    "AUC 0.5 or 1, mean 0.925": two_points(0.85, least=0.5),
    "narrow, 0.6 +- 0.05": normal(0.6, 0.05),
    "beta 8 2": Law(lambda random, shape: random.beta(8, 2, shape), 0.8),
    "uniform": Law(lambda random, shape: random.random(shape), 0.5),
    "narrow with one in ten at 1": Law(narrow_with_exposed, 0.55),
}
JUDGED = ("one in ten exposed", "one in twenty exposed", "nine in ten exposed", "AUC 0.5 or 1, mean 0.925")
"""Laws of which the verdicts are simulated: an attack finds all of a client, or nothing."""


def mean_of(values: Values) -> MeanOverClients:
    """Mean over clients of a metric from 0 to 1."""
    return MeanOverClients.of_clients(values, (0.0, 1.0))


@functools.cache
def verdict_of_attack(values: tuple[float, ...], limit: float, attacks: int) -> Outcome:
    """Verdict of one attack of several by the values of its clients, as `fedleak.evaluation.gate` has it.

    Audits in which all values are the same up to their order are judged once; `check` compares it with the gate.
    """
    safe, leaky = mean_of(np.array(values)).ends(low_tests=attacks)
    if len(values) < FEWEST:
        return "undecided"
    if safe > limit:
        return "failed"
    doubt = hidden(pd.Series(values), limit=limit, tests=attacks, binary=False)
    return "ok" if leaky <= limit and doubt is None else "undecided"


def evaluation_of(values: Values) -> Evaluation:
    """Evaluation of ``(attacks, clients)`` values of AUC."""
    names = [f"attack {number}" for number in range(len(values))]
    evaluation = Evaluation(lines={name: AttackInfo(role="ours", family="recommendation") for name in names})
    clients = np.arange(values.shape[1])
    tables = [
        score_table(name, {"auc": of_attack}, setting={"data": "d"}, seed=0, victims=clients)
        for name, of_attack in zip(names, values, strict=True)
    ]
    evaluation.scores = concat(tables)
    return evaluation


def outcome(values: Values, limit: float) -> Outcome:
    """Verdict of the gate on ``(attacks, clients)`` values of AUC."""
    evaluation = evaluation_of(values)
    return gate([Limit(None, "auc", limit)], [])(summarise(evaluation), evaluation)[0].verdict


def quick_outcome(values: Values, limit: float) -> Outcome:
    """The same by `verdict_of_attack`: the worst verdict of the attacks."""
    verdicts = {verdict_of_attack(tuple(sorted(of_attack)), limit, len(values)) for of_attack in values}
    worst: Outcome = next(verdict for verdict in ("failed", "undecided", "ok") if verdict in verdicts)
    return worst


def draws(law: Law, clients: int, attacks: int, audits: int, correlation: float, seed: int = 0) -> Iterator[Values]:
    """``(attacks, clients)`` values of each audit; the attacks have a client's value in common as often as asked."""
    random = np.random.default_rng(seed)
    for _ in range(audits):
        own = law.draw(random, (attacks, clients))
        common = law.draw(random, (1, clients))
        # An attack takes the common value of a client with the root of the correlation, so two attacks both do so
        # with the correlation itself.
        takes_common = random.random((attacks, clients)) < correlation**0.5
        yield np.where(takes_common, common, own)


def shares(law: Law, limit: float, clients: int, attacks: int, audits: int, correlation: float) -> dict[str, float]:
    """Share of each verdict over simulated audits."""
    counts = Counter(quick_outcome(values, limit) for values in draws(law, clients, attacks, audits, correlation))
    return {verdict: count / audits for verdict, count in counts.items()}


def check(audits: int = 5) -> None:
    """Compares the quick verdicts with those of the gate itself."""
    for law in (LAWS[name] for name in JUDGED):
        for limit in limits_of(law).values():
            for values in draws(law, 12, 3, audits, CORRELATION):
                assert quick_outcome(values, limit) == outcome(values, limit)


def limits_of(law: Law) -> dict[str, float]:
    """Limits by where they lie: at the mean, where red is wrong; at half of the leak, where green is; far above."""
    leak = law.mean - law.least
    return {
        "at the limit": law.mean,
        "at twice the limit": law.least + leak / 2,
        "far below the limit": law.mean + 0.8 * (1 - law.mean),
        "at five times the limit": law.least + leak / 5,
    }


def verdicts(audits: int) -> None:
    """Prints the share of each verdict."""
    check()
    print(f"{'law':28}{'attacks':>8}{'clients':>8}  {'limit':8}{'where':26}{'failed':>8}{'undecided':>11}{'ok':>8}")
    cells = [(name, n, k, c) for name in JUDGED for n in CLIENTS for k, c in ((1, 0.0), (10, 0.0), (10, CORRELATION))]
    for name, clients, attacks, correlation in tqdm(cells):
        for where, limit in limits_of(LAWS[name]).items():
            share = shares(LAWS[name], limit, clients, attacks, audits, correlation)
            failed, undecided, ok = (share.get(verdict, 0.0) for verdict in ("failed", "undecided", "ok"))
            label = f"{attacks}" if correlation == 0 else f"{attacks}*"
            line = f"{name:28}{label:>8}{clients:>8}  {limit:<8.3f}{where:26}{failed:8.3f}{undecided:11.3f}{ok:8.3f}"
            tqdm.write(line)
    print(f"* the attacks' values of a client have a correlation of {CORRELATION}")


@functools.cache
def _ends(values: tuple[float, ...]) -> tuple[float, float]:
    return mean_of(np.array(values)).ends()


def coverage(samples: int) -> None:
    """Prints the share of samples whose 95% interval has the mean of the law, and the mean width."""
    print(f"{'law':44}" + "".join(f"{f'n = {clients}':>16}" for clients in CLIENTS))
    for name, law in LAWS.items():
        cells = []
        for clients in CLIENTS:
            random = np.random.default_rng(0)
            ends = [_ends(tuple(sorted(law.draw(random, (clients,))))) for _ in range(samples)]
            cells.append(_covered(ends, law.mean))
        print(f"{name:44}" + "".join(cells))
    cells = [_covered(_ends_of_rounds(clients, samples), 0.6) for clients in CLIENTS]
    print(f"{'0.6 +- 0.05, rounds of 4 share a shift of 0.1':44}" + "".join(cells))
    cells = [_covered(_ends_of_drawn(clients, samples), None) for clients in CLIENTS]
    print(f"{'this recording of 40, a tenth of it exposed':44}" + "".join(cells))


def _covered(ends: list[tuple[float, ...]] | list[tuple[float, float]], mean: float | None) -> str:
    """Share of intervals with the mean, which may be a third entry of each, and their mean width."""
    held = 0
    for low, high, *own_mean in ends:
        true = own_mean[0] if mean is None else mean
        held += low - 1e-9 <= true <= high + 1e-9
    width = float(np.mean([interval[1] - interval[0] for interval in ends]))
    return f"{held / len(ends):8.3f} {width:7.3f}"


def _ends_of_rounds(clients: int, samples: int) -> list[tuple[float, float]]:
    """Intervals where four clients of one round share a shift, and every client took part in one round."""
    random = np.random.default_rng(0)
    ends = []
    for _ in range(samples // 10):  # tables of scores are slow
        rounds = np.arange(clients) // 4
        shift = random.normal(0, 0.1, rounds.max() + 1)[rounds]
        values = np.clip(0.6 + shift + random.normal(0, 0.05, clients), 0, 1)
        tables = [
            score_table("a", {"auc": values[rounds == number]}, setting={}, seed=0, round=number, victims=places)
            for number in range(rounds.max() + 1)
            for places in [np.flatnonzero(rounds == number)]
        ]
        ends.append(mean_over_clients(concat(tables)).ends())
    return ends


def _ends_of_drawn(clients: int, samples: int) -> list[tuple[float, ...]]:
    """Intervals of the mean of a recording of 40 clients of whom some were drawn, each with that mean."""
    random = np.random.default_rng(0)
    ends: list[tuple[float, ...]] = []
    for _ in range(samples):
        recorded = (random.random(40) < 0.1).astype(np.float64)
        values = random.choice(recorded, clients, replace=False)
        ends.append((*mean_of(values).ends_of_recording(1 - clients / 40), float(recorded.mean())))
    return ends


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("verdicts", "coverage"))
    parser.add_argument("--audits", type=int, default=2000)
    parser.add_argument("--samples", type=int, default=2000)
    chosen = parser.parse_args()
    if chosen.command == "verdicts":
        verdicts(chosen.audits)
    else:
        coverage(chosen.samples)
