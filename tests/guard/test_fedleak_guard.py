"""The distribution: its version, its dependencies and what an import of it imports."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from fedleak_guard import __version__
from tests.places import ROOT
from tests.without_fedleak import without_fedleak

PROJECT = tomllib.loads((ROOT / "guard/pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_version_is_stated_once() -> None:
    assert PROJECT["version"] == __version__
    assert f"Version {__version__}" in (ROOT / "guard/README.md").read_text(encoding="utf-8")


def test_three_dependencies_with_the_bounds_of_the_project() -> None:
    names = [re.split(r"[<>=]", one)[0] for one in PROJECT["dependencies"]]
    assert names == ["fedleak-recorder", "numpy", "pyyaml"]
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(PROJECT["dependencies"][1:]) <= set(whole["dependencies"])
    for name, (needed,) in PROJECT["optional-dependencies"].items():
        assert needed == whole["optional-dependencies"][name][0].replace("[simulation]", "")


@pytest.mark.integration
def test_a_message_is_checked_with_three_dependencies_only(tmp_path: Path) -> None:
    code = (
        "import json, sys; sys.path[:0] = sys.argv[1:3]; before = set(sys.modules)\n"
        "import numpy\n"
        "from pathlib import Path; from fedleak_guard import Guard, Message\n"
        "folder = Path(sys.argv[3]); policy = folder / 'policy.yaml'\n"
        "policy.write_text(f'format: 1\\nevidence: {folder}\\ntensors: [{{name: a}}]\\n')\n"
        "model = {'a': numpy.ones(3, 'f')}\n"
        "Guard(policy).release(Message(job='job', round=0, sent=model, received=model))\n"
        "print(json.dumps(sorted({n.split('.')[0] for n in set(sys.modules) - before} - set(sys.stdlib_module_names))))"
    )
    command = [*without_fedleak(tmp_path), "-c", code, str(ROOT / "guard"), str(ROOT / "recorder"), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, text=True)
    third = {name for name in json.loads(done.stdout) if not name.startswith("_")}
    # PyYAML's C extension brings cython_runtime.
    assert third <= {"numpy", "yaml", "cython_runtime", "fedleak_guard", "fedleak_recorder"}
