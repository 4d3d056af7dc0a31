"""Commands and attacks start without the libraries that they do not use; rooms export their public names."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from fedleak.core.cache import CACHE_VARIABLE

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = {"lightning", "matplotlib", "pandas", "seaborn", "sklearn", "timm", "torchvision", "wandb"}
RUN = """
import contextlib, runpy, sys
sys.path[0], sys.argv = "", {words}
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(None):
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
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
@pytest.mark.parametrize("words", ["attack.py --help", "attack.py list", "train.py --help"])
def test_help_and_the_list_of_attacks_take_no_library(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    if words == "attack.py list":
        imported_by(RUN.format(words=words.split()))  # the first list describes the attacks, later ones read that
    found = imported_by(RUN.format(words=words.split()))
    assert "fedleak" in found
    assert found & {*LIBRARIES, "numpy", "torch"} == set()


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
