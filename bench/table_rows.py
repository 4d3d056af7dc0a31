"""Rows of tables of people that attacks rebuild exactly, where possible rows are too many for a list.

``python -m bench.table_rows``: three numbers of 1,000 levels and five categories, 10^12 possible rows, and one step of
TabLeak's network, by number of rows and precision. Clients train in plain torch and send differences of parameters.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import torch

from bench.certificates.rows import PEOPLE, Round, round_of
from fedleak.attacks.reconstruction import ColumnPrior, LinearInversion, LinearPeeling, LinearRatio
from fedleak.attacks.reconstruction.estimates import ReconstructionAttack, ReconstructionEstimate
from fedleak.core.errors import ViewError
from fedleak.core.seeding import generator_for

ATTACKS: dict[str, Callable[[], ReconstructionAttack]] = {
    "linear-inversion": LinearInversion,
    "linear-peeling": LinearPeeling,
    "linear-ratio": LinearRatio,
    "column-prior": ColumnPrior,
}
RATE = 0.01
"""Learning rate of TabLeak's experiments."""


def rebuilt(attack: ReconstructionAttack, played: Round) -> tuple[int, int, int]:
    """Rows that are rebuilt exactly, certain ones, and those of the latter that are false."""
    try:
        estimate = attack(played.view, generator=generator_for(0, "attack"))
    except ViewError:
        return 0, 0, 0
    assert isinstance(estimate, ReconstructionEstimate)
    exact = certain = false = 0
    for victim, own in enumerate(played.holdings):
        count = int(estimate.count[victim])
        guesses = played.columns.decode(estimate.records[victim, :count])
        truth = Counter(map(tuple, played.columns.decode(played.rows[own]).tolist()))
        sure = Counter(map(tuple, guesses[estimate.certified[victim, :count]].tolist()))
        exact += (Counter(map(tuple, guesses.tolist())) & truth).total()
        certain += sure.total()
        false += (sure - truth).total()
    return exact, certain, false


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="federations of 8 clients in each cell")
    parser.add_argument("--rows", type=int, nargs="+", default=[8, 16, 32])
    options = parser.parse_args()
    print(f"{'rows':>5} {'precision':10}{'attack':20}{'exact':>7}{'certain':>9}{'false':>7}{'rows':>7}{'seconds':>9}")
    for records in options.rows:
        for double in (False, True):
            federation = replace(PEOPLE, records=records, double=double, rate=RATE)
            rounds = [round_of(federation, seed) for seed in range(options.seeds)]
            total = sum(len(own) for played in rounds for own in played.holdings)
            for name, attack in ATTACKS.items():
                start = time.perf_counter()
                counts = torch.tensor([rebuilt(attack(), played) for played in rounds]).sum(0).tolist()
                exact, certain, false = (number / total for number in counts)
                seconds = (time.perf_counter() - start) / total * records
                precision = "float64" if double else "float32"
                print(
                    f"{records:5} {precision:10}{name:20}{exact:7.3f}{certain:9.3f}{false:7.3f}{total:7}{seconds:9.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
