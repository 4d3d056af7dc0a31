"""``make bench-peers``: rounds of pfl-research, fedjax, Flower and fedleak, in turns, on the same jobs."""

import argparse
from pathlib import Path

import pandas as pd

from bench.figure import draw_ratios
from bench.peers.race import OURS, PEERS, PLAIN, Result, race
from fedleak.core.hardware import hardware
from fedleak.core.provenance import versions

OUT = Path("bench/out")


def main() -> None:
    """Measures the jobs one by one; each writes its numbers when it is done, and the figure shows all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", nargs="+", default=["J1", "J2", "J3"])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    for job in options.job:
        results = race(job, [PLAIN, *OURS, *PEERS], options.repeats)
        _table(job, results).to_csv(OUT / f"peers-{job}.csv", index=False)
    frame = pd.concat([pd.read_csv(path) for path in sorted(OUT.glob("peers-*.csv"))])
    draw_ratios(frame, OUT / "peers.svg")
    columns = ["job", "what", "value", "least", "most", "n", "ratio", "share_of_peak", "gap"]
    print(frame[columns].to_string(index=False))


def _table(job: str, results: list[Result]) -> pd.DataFrame:
    """One row per simulator; its ratio is its speed relative to the plain loop."""
    rows = [
        {
            "job": job,
            "what": result.name,
            "value": result.median,
            "unit": "s a round",
            "least": min(result.seconds),
            "most": max(result.seconds),
            "n": len(result.seconds),
            "ratio": results[0].median / result.median,
            "share_of_peak": result.share,
            "gap": result.gap,
        }
        for result in results
    ]
    return pd.DataFrame(rows).assign(hardware=hardware(), **versions())


if __name__ == "__main__":
    main()
