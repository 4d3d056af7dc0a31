"""Whether fedleak is installed: an app's own file of the same name hides it and must not switch checks off."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedleak_guard import main_package
from fedleak_guard.check import NotMadeError
from fedleak_guard.main_package import is_installed, main_module
from fedleak_recorder.errors import InputError
from tests.places import ROOT

SEND = """\
import json, sys
import numpy as np
from pathlib import Path
from fedleak_guard import Guard, Message, RefusedError
folder = Path(sys.argv[1])
policy = folder / "policy.yaml"
policy.write_text(f"format: 1\\nevidence: {folder}\\ntensors: [{{name: '*'}}]\\n")
draws = np.random.default_rng(0)
model = {"fc.weight": draws.normal(size=(5, 12)).astype("f"), "fc.bias": np.zeros(5, "f")}
change = {name: 0.1 * draws.normal(size=value.shape).astype("f") for name, value in model.items()}
try:
    Guard(policy).release(Message(job="job", round=0, sent=change, received=model))
    reasons = []
except RefusedError as refused:
    reasons = refused.reasons
entry = json.loads((folder / "log.jsonl").read_text())
print(json.dumps({"reasons": reasons, "not_made": entry["not_made"]}))
"""


def sent(folder: Path, *path: Path, named: str = "fedleak") -> dict[str, object]:
    """What the guard says of a message, run in a folder; it looks for the main package by the name that is given."""
    (folder / "evidence").mkdir()
    entries = [str(one) for one in (folder, *path, ROOT / "guard", ROOT / "recorder")]
    path_first = f"import sys; sys.path[:0] = {entries!r}"
    looks_for = f"from fedleak_guard import main_package; main_package._NAME = {named!r}"
    command = [sys.executable, "-W", "ignore", "-c", f"{path_first}\n{looks_for}\n{SEND}"]
    done = subprocess.run(
        [*command, str(folder / "evidence")], cwd=folder, capture_output=True, check=True, text=True, env={}
    )
    return dict(json.loads(done.stdout))


@pytest.mark.integration
def test_an_app_that_hides_the_package_is_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "fedleak.py").write_text('"""The app of somebody."""\n')
    said = sent(tmp_path, ROOT)
    assert "of fedleak, which is installed" in str(said["reasons"])


@pytest.mark.integration
def test_files_of_an_app_change_no_check(tmp_path: Path) -> None:
    """These names are those of Flower's tutorials, and of folders in the checkout."""
    alone, app = tmp_path / "alone", tmp_path / "app"
    alone.mkdir()
    app.mkdir()
    for name in ("client.py", "server.py", "task.py", "attacks.py", "protocol.py"):
        (app / name).write_text("raise ImportError('a file of the app')\n")
    (app / "modules").mkdir()
    said = sent(app, ROOT)
    assert said == sent(alone, ROOT)
    assert "is not installed" not in str(said["not_made"])


@pytest.mark.integration
def test_without_fedleak_its_checks_are_not_made_and_a_message_leaves(tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text('"""The app of somebody."""\n')
    said = sent(tmp_path, named="fedleak_of_a_test")  # the environment of the tests has the package
    assert said["reasons"] == []
    assert "own-records" in str(said["not_made"])
    assert "is not installed" in str(said["not_made"])


def test_a_distribution_is_enough_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    assert not is_installed()
    with pytest.raises(NotMadeError, match="not installed"):
        main_module("fedleak.core.view")
    monkeypatch.setattr(main_package, "_NAME", "numpy")
    monkeypatch.setattr(sys, "path", [str(Path(pytest.__file__).parents[1])])
    assert is_installed()
    with pytest.raises(InputError, match=r"no_such_module of fedleak, which is installed"):
        main_module("no_such_module")


def test_a_checkout_on_the_path_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(main_package, "_NAME", "fedleak_of_a_test")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [""])
    assert not is_installed()
    (tmp_path / "fedleak_of_a_test").mkdir()
    (tmp_path / "fedleak_of_a_test" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert is_installed()
