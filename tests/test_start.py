"""Commands and attacks start without the libraries that they do not use; rooms export their public names."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from fedleak.commands import program
from fedleak.core.cache import CACHE_VARIABLE
from fedleak.evaluation.gate import FAILED
from tests.guard_toys import write_policy
from tests.places import FILLED_SYSTEM
from tests.toys import train

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = {"lightning", "matplotlib", "pandas", "seaborn", "sklearn", "timm", "torchvision", "wandb"}
RUN = """
import contextlib, runpy, sys
sys.path[0], sys.argv = "", {words}
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(None):
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
TO_THE_END = """
import contextlib, runpy, sys
sys.path[0], sys.argv = "", {words}
try:
    with contextlib.redirect_stdout(None):
        runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
"""
FIGURES = {"matplotlib", "scipy", "seaborn"}
ROOMS = tuple(
    f"fedleak.{room}"
    for room in (
        *("attacks", "callbacks", "client", "core", "datamodules", "defenses", "evaluation", "modules"),
        *("recordings", "reports", "server", "tables", "training"),
    )
)


def imported_by(code: str) -> set[str]:
    """Names of the libraries that a process has imported after some code."""
    code += "\nimport sys; print({name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(eval(done.stdout.splitlines()[-1]))


@pytest.mark.integration
@pytest.mark.parametrize(
    "code",
    ["from fedleak.attacks import Direction", "import fedleak.evaluation.registry", "import fedleak.attacks.images"],
)
def test_attacks_import_torch_and_no_other_library_of_that_size(code: str) -> None:
    found = imported_by(code)
    assert "fedleak" in found
    assert found & LIBRARIES == set()


@pytest.mark.integration
@pytest.mark.parametrize(
    "words", ["attack.py --help", "attack.py --version", "attack.py list", "attack.py audit --help", "train.py --help"]
)
def test_help_and_the_list_of_attacks_take_no_library(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    if words == "attack.py list":
        imported_by(RUN.format(words=words.split()))  # the first list describes the attacks, later ones read that
    found = imported_by(RUN.format(words=words.split()))
    assert "fedleak" in found
    assert found & {*LIBRARIES, "numpy", "torch"} == set()


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of an audit with a limit and a statement, with its recording in ``deltas`` and its bundle in audit.zip."""
    folder = tmp_path_factory.mktemp("audited")
    train(folder, rounds=2, users=12, items=60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedleak.reports.write_page.report_figures", lambda *_, **__: [])
        options = ("--gate", "auc=0.6", "--statement", str(FILLED_SYSTEM))
        assert program.main(["audit", str(folder / "deltas"), *options]) == FAILED
    assert program.main(["export", str(folder), "--to", "bundle"]) == 0
    return folder


@pytest.mark.integration
@pytest.mark.parametrize(
    ("words", "others"),
    [
        ("attack.py verify AUDITED/audit.zip", FIGURES | {"jsonargparse"}),
        ("attack.py export AUDITED --to bundle --to.file OUT/audit.zip", FIGURES | {"jsonargparse"}),
        ("attack.py export AUDITED --to sarif", FIGURES | {"jsonargparse"}),
        ("attack.py export AUDITED --to model-card", {"matplotlib", "seaborn"}),
        ("attack.py report AUDITED --out OUT", set()),
        ("attack.py list --fits AUDITED/deltas", FIGURES | {"jsonargparse", "numpy", "pandas"}),
        ("train.py fit --help", FIGURES | {"jsonargparse", "numpy", "pandas"}),
        ("train.py fit --model.help FNCF", FIGURES | {"jsonargparse", "numpy", "pandas"}),
    ],
)
def test_commands_that_neither_train_nor_attack_take_no_torch(
    words: str, others: set[str], audited: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    given = [word.replace("AUDITED", str(audited)).replace("OUT", str(tmp_path / "out")) for word in words.split()]
    code = TO_THE_END.format(words=given)
    imported_by(code)  # the first call keeps what follows from the sources, later ones read that
    found = imported_by(code)
    assert "fedleak" in found
    assert found & {"lightning", "sklearn", "timm", "torch", "torchmetrics", "torchvision", "wandb", *others} == set()


@pytest.mark.integration
@pytest.mark.parametrize("words", ["check-policy POLICY", "capacity POLICY", "verify LOG"])
def test_the_guard_reads_policies_and_logs_without_torch(words: str, tmp_path: Path) -> None:
    policy = write_policy(tmp_path)
    (tmp_path / "egress.jsonl").touch()
    given = words.replace("POLICY", str(policy)).replace("LOG", str(tmp_path / "egress.jsonl")).split()
    found = imported_by(f"from fedleak_guard.command import main; assert main({given}) == 0")
    assert "fedleak_guard" in found
    assert found & {*LIBRARIES, "fedleak", "torch"} == set()


@pytest.mark.integration
def test_importing_a_room_imports_no_library() -> None:
    found = imported_by("import " + ", ".join(ROOMS))
    assert "fedleak" in found
    assert found & {*LIBRARIES, "numpy", "torch"} == set()


@pytest.mark.parametrize("room", ROOMS)
def test_every_name_that_a_room_exports_is_there(room: str) -> None:
    package = importlib.import_module(room)
    assert package.__all__
    for name in package.__all__:
        assert getattr(package, name).__name__ == name
        assert name in dir(package)
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = package.Nonsense
