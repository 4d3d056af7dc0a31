"""``python -m tests.additions [PYTEST OPTION ...]``: the quick tests, in a copy of the checkout with additions.

The files of ``tests/outside``, one of each kind, are put into the folders of their kinds, and no other line changes.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from tests.places import ROOT, copy_checkout

OUTSIDE = ROOT / "tests" / "outside"
ROOMS = {
    "interaction_counts": "attacks/interaction_counts",
    "scaled": "fedleak/server",
    "visits": "datamodules/recommendation",
    "largest_value": "fedleak/defenses",
    "rounding": "fedleak/defenses",
    "update_norms": "fedleak/evaluation/steps",
    "model_change": "fedleak/tables/after",
    "place_vectors": "modules/learners",
    "small_net": "modules/learners",
    "best_value": "fedleak/reports/exporters",
}
"""Folder of the checkout for each file of the package outside."""
KNOWN = "FEDLEAK_KNOWN_TESTS"
"""Variable with the file of the tests of the checkout, of which a copy runs those marked ``inventory`` alone."""


def write_copy(folder: Path) -> list[Path]:
    """Copies the checkout, without its history, and adds the files; returns these."""
    copy_checkout(folder)
    added = []
    for name, room in ROOMS.items():
        (folder / room).mkdir(exist_ok=True)  # a new family is a folder
        added.append(Path(shutil.copy(OUTSIDE / "my_audit" / f"{name}.py", folder / room)))
    classes = {name: path for path in added for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE)}
    for path in OUTSIDE.glob("configs/*/*.yaml"):
        text = path.read_text(encoding="utf-8").replace("class_path: my_audit.", "class_path: ")
        text = re.sub(r"my_audit\.(\w+)", lambda found: _path(classes[found[1]], folder, found[1]), text)
        added.append(folder / path.relative_to(OUTSIDE))
        added[-1].write_text(text, encoding="utf-8")
    return added


def _path(file: Path, folder: Path, name: str) -> str:
    return ".".join([*file.relative_to(folder).with_suffix("").parts, name])


def quick_tests(folder: Path, options: Sequence[str], **variables: str) -> "subprocess.CompletedProcess[str]":
    """Runs pytest on the quick tests in a folder."""
    words = [sys.executable, "-m", "pytest", "-p", "tests.additions", "-p", "no:cacheprovider", "-m", "not integration"]
    environment = {**os.environ, **variables, "OMP_NUM_THREADS": "1"}
    return subprocess.run([*words, *options], cwd=folder, env=environment, capture_output=True, text=True, check=False)


def quick_ids(folder: Path) -> set[str]:
    """Ids of the quick tests."""
    return ids_in(quick_tests(folder, ["--collect-only"]).stdout)


def ids_in(output: str) -> set[str]:
    """Ids of the tests that pytest lists, one in a line."""
    lines = (line.partition(" PASSED ")[0] for line in output.splitlines())
    return {line for line in lines if line.startswith("tests/") and "::" in line}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the tests that are new in a copy, and those that look over everything."""
    if KNOWN in os.environ:
        known: Collection[str] = {*Path(os.environ[KNOWN]).read_text(encoding="utf-8").splitlines()}
        left = [one for one in items if one.nodeid not in known or one.get_closest_marker("inventory") is not None]
        config.hook.pytest_deselected(items=[one for one in items if one not in left])
        items[:] = left


def main() -> int:
    """The command line; returns the exit status of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        write_copy(Path(folder))
        # Pages that are made from the code are made again, as who adds something does.
        subprocess.run([sys.executable, "-m", "docs.tools.included_page"], cwd=folder, check=True, capture_output=True)
        done = quick_tests(Path(folder), sys.argv[1:])
    print(done.stdout, done.stderr, sep="\n")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
