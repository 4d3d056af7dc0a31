"""Hostile messages of trees end in an InputError: no traceback, no hang, no GiB of memory."""

import json
import os
import subprocess
import sys

import pytest

from tests.places import ROOT


@pytest.mark.integration
def test_hostile_trees_are_refused_within_a_gibibyte() -> None:
    path = os.pathsep.join(str(ROOT / part) for part in (".", "recorder"))
    # More threads of the linear algebra would take more addresses.
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.fuzz.tree_messages", "1000", "0"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-2000:]
    answers = json.loads(run.stdout)
    assert answers["read"] + answers["refused"] == 1000
    # Changes of fields that are not needed leave a model that is read.
    assert answers["read"] > 50
    assert answers["refused"] > 500
