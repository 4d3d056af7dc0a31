"""Every tutorial runs as it stands, on the digits of scikit-learn or on generated data; its links lead somewhere."""

import ast
import os
import re
import runpy
import tempfile
from pathlib import Path

import pytest

from tests.fuzz.kills import in_process
from tests.places import ROOT

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))


@pytest.mark.integration
@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_ends_with_status_0(tutorial: Path, tmp_path: Path) -> None:
    def run() -> int:
        os.chdir(tmp_path)
        os.environ["MPLBACKEND"] = "Agg"
        tempfile.tempdir = str(tmp_path)
        runpy.run_path(str(tutorial), run_name="__main__")
        return 0

    status, said = in_process(run, tmp_path / "log", 300)
    assert status == 0, said


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_is_a_page(tutorial: Path) -> None:
    text = tutorial.read_text(encoding="utf-8")
    title, rule, *_ = (ast.get_docstring(ast.parse(text)) or "").splitlines()
    assert rule == "=" * len(title)
    assert text.count("\n# %%\n") >= 3
    for page in re.findall(r":doc:`/([^`]+)`", text):
        assert (ROOT / f"{page}.md").is_file(), page


def test_there_are_nine() -> None:
    assert len(TUTORIALS) >= 9
