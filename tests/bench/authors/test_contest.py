import importlib.util
from pathlib import Path

import numpy as np
import pytest

from bench.authors.__main__ import all_contests
from bench.authors.contest import Comparison
from bench.authors.contests.ilrg import LabelRestoration
from bench.process import ROOT

CONTESTS = all_contests()


@pytest.mark.parametrize(
    ("ours", "theirs", "equal"),
    [(0.98, 0.98, True), (0.98, 0.96, False), (0.96, 0.98, False), (float("nan"), float("nan"), False)],
)
def test_comparison_is_equal_within_the_tolerance(ours: float, theirs: float, equal: bool) -> None:
    compared = Comparison("AUC", ours, theirs, 0.01)
    assert compared.equal is equal
    assert ("apart" in str(compared)) is not equal


def test_counts_that_differ_are_not_equal_where_both_are_as_often_right() -> None:
    truth = np.array([[1, 0, 2, 0]])
    ours, theirs = np.array([[1, 0, 3, 0]]), np.array([[2, 0, 2, 0]])
    right, same = LabelRestoration().compare({"counts": truth}, {"counts": ours}, {"counts": theirs})
    assert right.equal
    assert same.ours == 0.5
    assert not same.equal


@pytest.mark.inventory
@pytest.mark.parametrize("name", CONTESTS)
def test_contest_names_an_environment_and_a_side(name: str) -> None:
    contest, folder = CONTESTS[name], ROOT / "bench" / "authors"
    assert all((folder / f"{contest.authors}.{end}").exists() for end in ("in", "lock"))
    assert importlib.util.find_spec(contest.theirs) is not None


@pytest.mark.parametrize("path", sorted((ROOT / "bench" / "authors").glob("*.source")), ids=lambda path: path.stem)
def test_sources_are_pinned_by_commit(path: Path) -> None:
    repository, commit = path.read_text(encoding="ascii").split()
    assert repository.count("/") == 1
    assert len(bytes.fromhex(commit)) == 20
