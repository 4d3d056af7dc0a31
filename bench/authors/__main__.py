"""``make bench-attacks``: fedleak's attacks and the code of their authors on the same inputs, in turns."""

import argparse
import importlib
import pkgutil
from pathlib import Path

import pandas as pd

from bench.authors import contests
from bench.authors.contest import Contest
from bench.authors.race import race
from fedleak.core.hardware import hardware
from fedleak.core.provenance import versions

OUT = Path("bench/out")


def all_contests() -> dict[str, Contest]:
    """Every contest by name: the classes with a name in the modules of `bench.authors.contests`."""
    modules = (
        importlib.import_module(f"{contests.__name__}.{one.name}") for one in pkgutil.iter_modules(contests.__path__)
    )
    classes = {one for module in modules for one in vars(module).values() if isinstance(one, type)}
    named = [one() for one in classes if issubclass(one, Contest) and "name" in vars(one)]
    return {one.name: one for one in sorted(named, key=lambda one: one.name)}


def main() -> None:
    """Races the contests one by one; each writes its row when it is done."""
    known = all_contests()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contest", nargs="+", default=list(known), choices=list(known), metavar="NAME")
    parser.add_argument("--repeats", type=int, help="turns, instead of the contest's own number")
    parser.add_argument("--threads", type=int, default=1, help="threads of each side")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    for name in options.contest:
        result = race(known[name], repeats=options.repeats, threads=options.threads)
        row = pd.DataFrame([result.row()]).assign(threads=options.threads, hardware=hardware(), **versions())
        row.to_csv(OUT / f"authors-{name}.csv", index=False)
    frame = pd.concat([pd.read_csv(path) for path in sorted(OUT.glob("authors-*.csv"))])
    columns = ["contest", "victims", "n", "results", "ours_s", "theirs_s", "ratio", "ours_mib", "theirs_mib"]
    print(frame[columns].to_string(index=False))


if __name__ == "__main__":
    main()
