"""Plug-ins are found, and whatever hides or breaks one keeps every message at the site."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedleak_guard import RefusedError, known_checks
from fedleak_guard.chained_log import read_log
from fedleak_guard.known_checks import GROUP, checks_to_make, is_installed
from tests.guard_toys import log_of, message, site, update
from tests.places import ROOT
from tests.without_fedleak import without_fedleak

Installs = Callable[[str, str], None]

SEND = """\
import json, sys
import numpy as np
from pathlib import Path
from fedleak_guard import Guard, Message, RefusedError
folder = Path(sys.argv[1])
policy = folder / "policy.yaml"
policy.write_text(f"format: 1\\nevidence: {folder}\\ntensors: [{{name: '*'}}]\\nfindings: {{own-records: refuse}}\\n")
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
PAGE = (ROOT / "docs/site/guard-reference.md").read_text(encoding="utf-8")
CHECK = PAGE.split("## A check of your own")[1].split("```")[1].removeprefix("python")
"""A check as another distribution has it, from the page."""


def sent(folder: Path, *command: str, path: tuple[Path, ...] = ()) -> dict[str, object]:
    """What the guard says of a message, in a process of its own that runs in a folder."""
    (folder / "evidence").mkdir()
    entries = [str(entry) for entry in (folder, *path, ROOT / "guard", ROOT / "recorder")]
    code = f"import sys; sys.path[:0] = {entries!r}\n{SEND}"
    done = subprocess.run(
        [*(command or (sys.executable,)), "-W", "ignore", "-c", code, str(folder / "evidence")],
        cwd=folder,
        capture_output=True,
        check=True,
        text=True,
        env={},
    )
    return dict(json.loads(done.stdout))


@pytest.mark.integration
@pytest.mark.parametrize(
    "hides", [("fedleak.py",), ("fedleak/__init__.py",), ("fedleak/__init__.py", "fedleak/guard_checks.py")]
)
def test_an_app_that_hides_the_package_is_a_refusal(tmp_path: Path, hides: tuple[str, ...]) -> None:
    for name in hides:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('"""The app of somebody."""\n')
    said = sent(tmp_path, path=(ROOT,))
    (reason,) = list(said["reasons"])  # type: ignore[call-overload]
    assert "of fedleak, which is installed" in reason


@pytest.mark.integration
def test_files_of_an_app_change_no_check(tmp_path: Path) -> None:
    """These names are those of Flower's tutorials, and of folders in the checkout."""
    alone, app = tmp_path / "alone", tmp_path / "app"
    alone.mkdir()
    app.mkdir()
    for name in ("client.py", "server.py", "task.py", "attacks.py", "protocol.py", "guard_checks.py"):
        (app / name).write_text("raise ImportError('a file of the app')\n")
    (app / "modules").mkdir()
    said = sent(app, path=(ROOT,))
    assert said == sent(alone, path=(ROOT,))
    assert "is not installed" not in str(said["not_made"])


@pytest.mark.integration
def test_without_fedleak_its_checks_are_not_made_and_a_message_leaves(tmp_path: Path) -> None:
    """Its names are known all the same: the policy has one."""
    app = tmp_path / "app"
    app.mkdir()
    (app / "client.py").write_text('"""The app of somebody."""\n')
    said = sent(app, *without_fedleak(tmp_path))
    assert said["reasons"] == []
    assert "own-records" in str(said["not_made"])
    assert "is not installed" in str(said["not_made"])


def test_every_declared_check_has_a_plug_in_of_the_main_package() -> None:
    declared = {name for name, kind in known_checks.known_checks().items() if kind.exact}
    made = checks_to_make()
    assert {made[name].__module__.rpartition(".")[0] for name in declared} == {"fedleak.guard_checks"}
    for name in declared:
        assert issubclass(made[name], known_checks.known_checks()[name])


def test_a_checkout_and_an_installation_have_the_same_plug_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    in_a_checkout = known_checks._IN_A_CHECKOUT
    assert project["entry-points"][GROUP] == {in_a_checkout.name: in_a_checkout.value}
    found = []
    for registered in ([], [in_a_checkout]):
        monkeypatch.setattr(known_checks, "_entry_points", lambda registered=registered: registered)
        known_checks._to_make.cache_clear()
        found.append(checks_to_make())
    known_checks._to_make.cache_clear()
    assert found[0] == found[1]


def test_a_distribution_is_enough_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    assert not is_installed()
    monkeypatch.setattr(known_checks, "MAIN_PACKAGE", "numpy")
    monkeypatch.setattr(sys, "path", [str(Path(pytest.__file__).parents[1])])
    assert is_installed()


def test_a_checkout_on_the_path_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(known_checks, "MAIN_PACKAGE", "fedleak_of_a_test")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [""])
    assert not is_installed()
    (tmp_path / "fedleak_of_a_test").mkdir()
    (tmp_path / "fedleak_of_a_test" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert is_installed()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installs:
    """Installs a distribution with a module and its entry points; its module has a name that no other test uses."""

    def of(module: str, entry_points: str) -> None:
        name = f"hospital_{abs(hash(str(tmp_path)))}"
        (tmp_path / f"{name}.py").write_text(module)
        metadata = tmp_path / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n{entry_points.replace('MODULE', name)}\n")
        monkeypatch.syspath_prepend(tmp_path)

    return of


@pytest.mark.parametrize("entry_points", ["hospital = MODULE", "largest-number = MODULE:LargestNumber"])
def test_a_check_of_another_distribution_is_made(tmp_path: Path, install: Installs, entry_points: str) -> None:
    guard = site(tmp_path, "limits: {largest-number: 0.5}\n")
    with pytest.raises(RefusedError, match="the name of a check; found 'largest-number'"):
        guard.release(message())
    install(CHECK, entry_points)
    with pytest.raises(RefusedError, match=r"largest-number: a number of 9, above 0.5"):
        guard.release(message(sent={**update(), "bias": np.full(4, 9, "f")}))
    guard.release(message())
    checks = read_log(log_of(tmp_path))[0][-1]["checks"]
    assert 0 < checks["largest-number"]["value"] < checks["largest-number"]["limit"] == 0.5


BROKEN = {
    "a module that is not there": (CHECK, "hospital = no_such_module", "ModuleNotFoundError"),
    "a class that is not there": (CHECK, "hospital = MODULE:Nothing", "AttributeError"),
    "a module that fails": ("raise OSError('no disk')", "hospital = MODULE", "OSError: no disk"),
    "a module without checks": ("", "hospital = MODULE", "a module without any"),
    "no class": (f"{CHECK}\nmade = LargestNumber()", "hospital = MODULE:made", "a class that extends Check"),
    "another class": (CHECK + "\nclass Other: pass", "hospital = MODULE:Other", "a class that extends Check"),
    "an abstract check": (CHECK.replace("def measure", "def weigh"), "hospital = MODULE", "a class that extends Check"),
    "a check of the guard": (CHECK.replace("largest-number", "update-norm"), "h = MODULE", "update-norm of"),
    "a check of fedleak": (CHECK.replace("largest-number", "own-records"), "h = MODULE", "own-records of"),
    "two of one name": (CHECK, "one = MODULE\ntwo = MODULE:LargestNumber", "largest-number of"),
    "a name of other letters": (CHECK.replace("largest-number", "a: b"), "hospital = MODULE", "small letters"),
    "an unknown action": (f"{CHECK}\n    action = 'drop'\n", "hospital = MODULE", "an action among its actions"),
    "undeclared, as of fedleak": (CHECK, "fedleak = MODULE", "one release"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_plug_in_that_cannot_be_used_keeps_every_message(tmp_path: Path, install: Installs, name: str) -> None:
    module, entry_points, said = BROKEN[name]
    guard = site(tmp_path)
    guard.release(message())
    install(module, entry_points)
    for content in (message(), message(sent=None, metrics={"loss": 1.0})):
        with pytest.raises(RefusedError) as refused:
            guard.release(content)
        assert len(refused.value.reasons) == 1
        assert said in refused.value.reasons[0]
        assert "nothing leaves the site" in refused.value.reasons[0]
