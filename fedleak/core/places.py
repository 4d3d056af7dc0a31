"""Folders of the package on this machine, in a checkout and in an installation."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
"""The package ``fedleak``."""
CONFIGS = PACKAGE / "configs"
"""Configurations of trainings, tables, networks and the demo."""
TEMPLATES = PACKAGE / "reports" / "templates"
"""Templates of pages."""
CHECKOUT = PACKAGE.parent if (PACKAGE.parent / "train.py").is_file() and (PACKAGE / "attacks").is_symlink() else None
"""The checkout that the package lies in; None in an installation."""
