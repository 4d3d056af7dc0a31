"""The distribution: its version, its dependencies and what an import of it imports."""

import json
import re
import subprocess
import sys
import tomllib

import pytest

from fedleak_recorder import FORMAT, __version__
from tests.places import ROOT

PROJECT = tomllib.loads((ROOT / "recorder/pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_version_and_format_are_stated_once() -> None:
    assert PROJECT["version"] == __version__
    text = (ROOT / "recorder/README.md").read_text(encoding="utf-8")
    assert f"Version {__version__}" in text
    assert f"format {FORMAT}" in text


def test_two_dependencies_with_the_bounds_of_the_project() -> None:
    names = [re.split(r"[<>=]", one)[0] for one in PROJECT["dependencies"]]
    assert names == ["numpy", "safetensors"]
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(PROJECT["dependencies"]) <= set(whole["dependencies"])
    extras = PROJECT["optional-dependencies"]
    for name, (needed,) in extras.items():
        ours = whole["optional-dependencies"][name][0].replace("[simulation]", "")
        assert needed == ours


@pytest.mark.integration
def test_an_import_needs_numpy_and_safetensors_only() -> None:
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); before = set(sys.modules)\n"
        "from fedleak_recorder import Recorder, InputError, FORMAT\n"
        "print(json.dumps(sorted({n.split('.')[0] for n in set(sys.modules) - before} - set(sys.stdlib_module_names))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "recorder")], capture_output=True, check=True, text=True
    )
    third = {name for name in json.loads(done.stdout) if not name.startswith("_")}
    assert third <= {"numpy", "safetensors", "fedleak_recorder"}
