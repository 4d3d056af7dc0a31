import importlib.util
from pathlib import Path

import pytest

from bench.authors.__main__ import all_contests
from bench.process import ROOT

CONTESTS = all_contests()


@pytest.mark.inventory
@pytest.mark.parametrize("name", CONTESTS)
def test_contest_names_pinned_sources_an_environment_and_a_side(name: str) -> None:
    contest, folder = CONTESTS[name], ROOT / "bench" / "authors"
    repository, commit = (folder / f"{contest.authors}.source").read_text(encoding="ascii").split()
    assert repository.count("/") == 1
    assert len(commit) == 40
    assert all((folder / f"{contest.authors}.{end}").exists() for end in ("in", "lock"))
    assert importlib.util.find_spec(contest.theirs) is not None
    makefile = Path(ROOT / "Makefile").read_text(encoding="utf-8")
    authors = next(line for line in makefile.splitlines() if line.startswith("AUTHORS := "))
    assert contest.authors in authors.split()
