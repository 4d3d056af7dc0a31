import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench.authors.host import Arrays, load, part
from bench.process import ROOT


def test_part_takes_the_names_of_one_prefix() -> None:
    arrays: Arrays = {"model/a": np.ones(1), "model/b/c": np.ones(2), "models": np.ones(3)}
    assert set(part(arrays, "model")) == {"a", "b/c"}


@pytest.mark.integration
def test_side_attacks_what_the_file_holds_and_reports_its_memory(tmp_path: Path) -> None:
    from bench.authors.contests.ilrg import LabelRestoration

    inputs, truth = LabelRestoration().write()
    np.savez(tmp_path / "inputs.npz", **inputs)  # type: ignore[arg-type]
    command = [sys.executable, "-m", "bench.authors.host", "bench.authors.contests.ilrg", str(tmp_path / "inputs.npz")]
    done = subprocess.run(
        command, input=f"{tmp_path / 'found.npz'}\n", capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    answer = json.loads(done.stdout)
    assert 0 < answer["loaded"] <= answer["peak"]
    np.testing.assert_array_equal(load(tmp_path / "found.npz")["counts"], truth["counts"])
