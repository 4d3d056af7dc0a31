"""``python -m tests.regression [--write] [NAME ...]``: compares the numbers of tables with the frozen ones."""

import argparse
import contextlib
import io
import logging
import os
import sys
import tempfile
import time
from pathlib import Path

from fedleak.core.cache import CACHE_VARIABLE
from tests import conftest  # noqa: F401 - sets the key of what is drawn in secret
from tests.regression.cases import Values, names, reductions, run_case, run_cases
from tests.regression.data import write_data
from tests.regression.frozen import differences, new_rows, path_of, write_frozen


def main() -> int:
    """The command line; returns the exit status, 1 where a number moved."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="tables, and files of configs/train; all if none")
    parser.add_argument("--write", action="store_true", help="write the values anew")
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    moved = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ[CACHE_VARIABLE] = f"{folder}/cache"
        data = write_data(Path(folder) / "data")
        for name in chosen.names or run_cases():
            start = time.perf_counter()
            values = _quietly(name, data, Path(folder) / name)
            print(f"{name:32} {len(values):4} values {time.perf_counter() - start:6.1f} s", flush=True)
            lines = differences(name, values) if path_of(name).is_file() else [f"{path_of(name)} is missing"]
            print("\n".join(lines), end="\n" if lines else "", flush=True)
            moved += bool(lines)
            if path_of(name).is_file() and (added := new_rows(name, values)):
                print("\n".join(["not frozen:", *added]), flush=True)
            if chosen.write:
                write_frozen(name, values)
    missing = sorted({*names("paper", "table", "train")} - {*reductions()})
    if missing:
        print(f"without an entry in reductions.yaml, so not run: {', '.join(missing)}")
    return 1 if moved and not chosen.write else 0


def _quietly(name: str, data: Path, folder: Path) -> Values:
    """Says what the commands said only if one fails."""
    folder.mkdir()
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            return run_case(name, data=data, folder=folder)
    except BaseException:
        print(said.getvalue(), file=sys.stderr)
        raise


if __name__ == "__main__":
    sys.exit(main())
