"""A Python that has the guard's dependencies and no fedleak, whatever the environment of the tests has."""

import importlib.util
import sys
from pathlib import Path

_PARTS = ("numpy", "numpy.libs", "yaml", "_yaml")
"""Packages of the environment that the guard imports, and their libraries."""


def without_fedleak(folder: Path) -> tuple[str, ...]:
    """A command that starts it, with links to these packages in a folder, and with neither guard nor recorder."""
    packages = folder / "packages"
    packages.mkdir()
    for name in ("numpy", "yaml"):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        for part in _PARTS:
            place = Path(spec.origin).parents[1] / part
            if place.exists() and not (packages / part).exists():
                (packages / part).symlink_to(place)
    return ("env", f"PYTHONPATH={packages}", sys.executable, "-S")
