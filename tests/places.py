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


def tracked() -> list[Path]:
    """Files that git knows, or all but hidden folders where there is no git."""
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode == 0 and listing.stdout:
        return [ROOT / line for line in listing.stdout.splitlines() if (ROOT / line).is_file()]
    skipped = {".uv", ".venv", "runs"}
    return [p for p in ROOT.rglob("*") if p.is_file() and not skipped & set(p.relative_to(ROOT).parts)]
