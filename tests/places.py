"""Folders of the checkout, and of the real data sets where they are."""

import os
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


_NO_SOURCE = {".uv", ".venv", "runs", "__pycache__"}
"""Folders of what is installed, written by a run, or compiled, for a checkout without git."""


def tracked() -> list[Path]:
    """Files that git knows, or those of the checkout where there is no git."""
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode == 0 and listing.stdout:
        return [ROOT / line for line in listing.stdout.splitlines() if (ROOT / line).is_file()]
    return source_files(ROOT)


def source_files(folder: Path) -> list[Path]:
    """All files of a folder but those of `_NO_SOURCE`."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if not _NO_SOURCE & set(path.relative_to(folder).parts)]
