"""Folders of the checkout, and of the real data sets where they are."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / "configs"
GOLDEN = ROOT / "tests" / "golden"
"""Arrays made by other authors' code."""
FILLED_SYSTEM = ROOT / "tests" / "shop_system.yaml"
"""A declaration of an invented system in which every field is filled in."""
REAL = Path(os.environ.get("FEDLEAK_DATA", ROOT.parent / "shared" / "data"))
"""Real data sets by their canonical names; tests that read one are skipped where it is not there."""


ADDITIONS = ("attacks", "callbacks", "datamodules", "modules")
"""Rooms of the package that lie at the top of the checkout; `fedleak` has links to them."""


def package_sources() -> list[Path]:
    """Python files of the package, each once."""
    return sorted(path for room in ("fedleak", *ADDITIONS) for path in (ROOT / room).rglob("*.py"))


_NO_SOURCE = {".uv", ".venv", "runs", "__pycache__"}
"""Folders of what is installed, written by a run, or compiled, for a checkout without git."""


def tracked() -> list[Path]:
    """Files that git knows, or those of the checkout where there is no git; without links."""
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode == 0 and listing.stdout:
        paths = [ROOT / line for line in listing.stdout.splitlines()]
        return [path for path in paths if path.is_file() and not path.is_symlink()]
    return source_files(ROOT)


def copy_checkout(folder: Path) -> None:
    """Copies the files of the checkout, without its history, and the links of the package to them."""
    for path in tracked():
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    for package in ("fedleak", "recorder", "guard"):
        for link in (path for path in (ROOT / package).rglob("*") if path.is_symlink()):
            (folder / link.relative_to(ROOT)).symlink_to(link.readlink())


def source_files(folder: Path) -> list[Path]:
    """All files of a folder but those of `_NO_SOURCE`."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return [path for path in files if not _NO_SOURCE & set(path.relative_to(folder).parts)]
