"""What ``fedleak watch`` does: ``python -m bench.watch WHAT``.

* ``false-stops`` simulates federations of 100 rounds whose persons are exactly at the limit; a stop is false.
* ``power`` compares the gate that looks after every round with one that looks once, at the end, over fewer clients.
* ``messages`` audits the messages of federations with local DP, each round alone: honest ones, and with a fault.
* ``flower`` and ``nvflare`` train 20 rounds with a fault in round 7, and without one, in the environments of
  ``make test-flower`` and ``make test-nvflare``.
* ``overhead`` measures rounds with the recorder and the watch, and without them.
"""

import argparse
import dataclasses
import math
from collections.abc import Sequence
from typing import get_args

import numpy as np
import torch
from tqdm import tqdm

from bench.release_simulation import System, recording_of, round_of
from bench.watch_frameworks import overhead, planted_fault
from bench.watch_simulation import LIMIT, Federation, Kind, one_look, sequential
from fedleak.attacks.declared_privacy.release_check import ReleaseCheck, ReleaseEstimate
from fedleak.core.scoring import clopper_pearson
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.evaluation.confidence_sequence import ConfidenceSequence

KINDS = get_args(Kind)
SPREADS = ((0.1, 0.1), (0.05, 0.25))
"""Standard deviations between persons, and within a person."""


def false_stops(federations: int) -> None:
    """Share of honest federations that each gate stops."""
    print(f"{'persons':>14}{'clients':>8}{'between':>8}{'within':>8}  gate, looks: stopped, 95% interval")
    for kind in KINDS:
        for clients in (8, 20, 50):
            for between, within in SPREADS:
                federation = Federation(kind, LIMIT, clients, between, within)
                stopped = {"audit, 1 look": 0, "audit, 100 looks": 0, "watch, 100 looks": 0}
                for seed in tqdm(range(federations), desc=f"{kind}, {clients}", leave=False):
                    rounds = list(federation.each_round(np.random.default_rng(seed)))
                    stopped["audit, 1 look"] += one_look(rounds, every=False) is not None
                    stopped["audit, 100 looks"] += one_look(rounds, every=True) is not None
                    stopped["watch, 100 looks"] += sequential(rounds) is not None
                shares = []
                for gate, count in stopped.items():
                    low, high = clopper_pearson(count, federations)
                    shares.append(f"{gate}: {count / federations:.3f} ({low:.3f} to {high:.3f})")
                print(f"{kind:>14}{clients:>8}{between:>8}{within:>8}  {'; '.join(shares)}", flush=True)


def power(federations: int) -> None:
    """Share of federations beyond the limit that `watch` stops, where one look over fewer clients stops 0.9."""
    print(
        f"{'persons':>14}{'clients':>8}{'between':>8}{'within':>8}{'beyond':>8}  one look, watch at 1, 1.5, 2, 3 times"
    )
    for kind in KINDS:
        for clients in (20, 50):
            for between, within in SPREADS:
                federation = Federation(kind, LIMIT, clients, between, within, rounds=20)
                beyond = _detectable(federation)
                leaking = dataclasses.replace(federation, mean=LIMIT + beyond)
                once = _share(leaking, federations, "once")
                found = [
                    _share(dataclasses.replace(leaking, clients=int(times * clients)), federations, "watch")
                    for times in (1, 1.5, 2, 3)
                ]
                numbers = " ".join(f"{share:.3f}" for share in (once, *found))
                print(f"{kind:>14}{clients:>8}{between:>8}{within:>8}{beyond:8.4f}  {numbers}", flush=True)


def _detectable(federation: Federation) -> float:
    """How far beyond the limit one look at the end stops 0.9 of the federations."""
    near, far = 0.0, 0.4
    for _ in range(8):
        middle = (near + far) / 2
        share = _share(dataclasses.replace(federation, mean=LIMIT + middle), 300, "once")
        near, far = (middle, far) if share < 0.9 else (near, middle)
    return far


def _share(federation: Federation, federations: int, gate: str) -> float:
    stopped = 0
    for seed in range(federations):
        rounds = list(federation.each_round(np.random.default_rng(seed)))
        stopped += (one_look(rounds, every=False) if gate == "once" else sequential(rounds)) is not None
    return stopped / federations


def messages(federations: int, rounds: int = 10) -> None:
    """Share of federations of 10 clients with local DP that a limit of 0.05 on findings of the release check stops."""
    honest, system = 0, System(multiplier=1.2)
    before, in_time, after = 0, 0, 0
    for seed in tqdm(range(federations), leave=False):
        draws = generator_for(seed, "bench watch")
        counts = []
        for number in range(rounds):
            view = dataclasses.replace(round_of(system, "", draws), round=number)
            counts.append(_findings(view, draws))
        bare = dataclasses.replace(round_of(dataclasses.replace(system, multiplier=1e-6), "", draws), round=7)
        bare = dataclasses.replace(bare, releases=round_of(system, "", draws).releases)
        honest += _stopped(counts, rounds) is not None
        found = _stopped([*counts[:7], _findings(bare, draws), *counts[8:]], rounds)
        before, in_time = before + (found is not None and found < 7), in_time + (found == 7)
        after += found is None or found > 7
    print(f"{federations} honest federations of {rounds} rounds: {honest} stopped")
    print(f"no noise in round 7: stopped {before} before it, {in_time} after it, {after} after round 8 or never")


def _findings(view: RoundView, draws: torch.Generator) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    found = ReleaseCheck()(recording_of([view]), generator=draws)
    assert isinstance(found, ReleaseEstimate)
    return found.findings.numpy()


def _stopped(counts: Sequence["np.ndarray[tuple[int], np.dtype[np.float64]]"], rounds: int) -> int | None:
    """Number, from 0, of the round after which the findings stop a training."""
    sequence = ConfidenceSequence(0, math.inf, rounds=rounds)
    for number, own in enumerate(counts):
        sequence.add_round(range(len(own)), own)
        if sequence.exceeds(0.05):
            return number
    return None


def main() -> None:
    """Prints the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("false-stops", "power", "messages", "flower", "nvflare", "overhead"))
    parser.add_argument("--federations", type=int, default=1000)
    parser.add_argument("--python", help="interpreter of the framework's environment")
    parser.add_argument("--blocks", type=int, default=10, help="of three rounds each, for overhead")
    options = parser.parse_args()
    if options.what == "overhead":
        overhead(options.blocks)
    elif options.what in ("flower", "nvflare"):
        python = options.python or f".uv/{options.what}/bin/python"
        for fault in (7, 1000):
            planted_fault(options.what, python, fault, 20)
    else:
        {"false-stops": false_stops, "power": power, "messages": messages}[options.what](options.federations)


if __name__ == "__main__":
    main()
