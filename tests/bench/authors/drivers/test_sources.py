import json
from pathlib import Path

import pytest

from bench.authors.drivers.sources import notebook_function


def test_notebook_function_runs_as_it_stands_with_the_names_it_is_given(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["def step(x)"]},
        {"cell_type": "code", "source": ["data = load()\n", "def step(x, rate=lr):\n", "    return x - rate\n"]},
    ]
    notebook = tmp_path / "own.ipynb"
    notebook.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    assert notebook_function(notebook, "step", {"lr": 2})(5) == 3
    with pytest.raises(SystemExit, match="pinned commit"):
        notebook_function(notebook, "absent", {})
