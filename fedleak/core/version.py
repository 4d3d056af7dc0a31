"""The version of fedleak: in a checkout that of ``pyproject.toml``, in an installation that of the distribution."""

import tomllib
from importlib.metadata import version

from fedleak.core.places import CHECKOUT


def _version() -> str:
    if CHECKOUT is None:
        return version("fedleak")
    # Metadata of a distribution beside the checkout, if there is any, may be of an earlier version.
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


__version__ = _version()
