"""Prints what is certified, and how much of it is false, under each condition of a family."""

import argparse
import importlib
import pkgutil

from bench import certificates
from bench.certificates import Counts

FAMILIES = sorted(name for _, name, _ in pkgutil.iter_modules(certificates.__path__) if not name.startswith("_"))


def print_line(condition: str, counts: Counts) -> None:
    share = counts.recovered / max(counts.records, 1)
    refusal = f"  refused: {counts.refusal[:60]}" if counts.refusal else ""
    print(
        f"{condition:64}{counts.certified:>10}{counts.false:>7}{share:>11.3f}{counts.records:>9}{refusal}", flush=True
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--seeds", type=int, default=2, help="federations of each condition")
    parser.add_argument("--only", default="", help="conditions whose name contains this")
    options = parser.parse_args()

    family = importlib.import_module(f"bench.certificates.{options.family}")
    total = Counts()
    print(f"{'condition':64}{'certified':>10}{'false':>7}{'recovered':>11}{'records':>9}")
    for condition, counted in family.conditions().items():
        if options.only not in condition:
            continue
        counts = Counts()
        for seed in range(options.seeds):
            counts = counts + counted(seed)
        print_line(condition, counts)
        total = total + counts
    print_line("all", total)
