"""Versions of what runs: in a checkout those of its ``pyproject.toml``, else those of the installed distributions."""

import platform
import tomllib
from importlib.metadata import PackageNotFoundError, version

from fedleak.core.places import CHECKOUT

_OF_A_CHECKOUT = {"fedleak": ".", "fedleak-recorder": "recorder", "fedleak-guard": "guard"}
"""Distributions by the folder of their pyproject.toml."""
_OTHERS = ("torch", "lightning")


def versions_text() -> str:
    """A line for each distribution that is there, and for Python; none of them is imported."""
    lines = []
    for name in (*_OF_A_CHECKOUT, *_OTHERS):
        number = _version(name)
        if number:
            lines.append(f"{name} {number}")
    lines.append(f"python {platform.python_version()}")
    return "\n".join(lines)


def _version(name: str) -> str:
    """Version of a distribution; empty if there is none."""
    if CHECKOUT is not None and name in _OF_A_CHECKOUT:
        # An installation of another version may be on the path too: the code that runs is that of the checkout.
        project = CHECKOUT / _OF_A_CHECKOUT[name] / "pyproject.toml"
        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


__version__ = _version("fedleak")
