"""``python -m tests.fuzz``: mutants for some minutes, a table at the end; exit status 1 if any did what none may do."""

import argparse
import logging
import sys
import time
from pathlib import Path

import torch
from tqdm import tqdm

from tests.fuzz.table import Table
from tests.fuzz.targets import targets

_AT_ONCE = 60


def main() -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="targets whose names hold this")
    parser.add_argument("--number", type=int, help="one mutant of each of them, e.g. of a failure's line")
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"), help="folder of failures.jsonl and table.txt")
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    chosen_targets = [target for target in targets() if chosen.only in target.name]
    table = Table(chosen.out / "failures.jsonl")
    if chosen.number is not None:
        for target in chosen_targets:
            table.run(target, seed=chosen.seed, numbers=[chosen.number])
    end, begin = time.monotonic() + 60 * chosen.minutes, 0
    with tqdm(total=round(60 * chosen.minutes), unit="s", disable=chosen.number is not None) as bar:
        while chosen.number is None and time.monotonic() < end:
            for target in chosen_targets:
                count = 12 if target.name.startswith("audit") else _AT_ONCE
                if time.monotonic() < end:
                    table.run(target, seed=chosen.seed, numbers=range(begin, begin + count))
                    bar.set_postfix(mutants=table.mutants, failures=len(table.failed))
                    bar.update(min(bar.total, round(bar.total - end + time.monotonic())) - bar.n)
            begin += _AT_ONCE
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "table.txt").write_text(table.text() + "\n")
    print(table.text())
    print("\n".join(table.failed))
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
