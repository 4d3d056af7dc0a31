"""``python requirements/missing.py [GROUP ...]``: what this Python lacks of the dependencies in pyproject.toml.

``make PYTHON=...`` runs it with a Python that somebody has already, before anything else, and installs nothing there.
"""

import importlib.metadata
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def missing(requirements: Iterable[str]) -> list[str]:
    """Requirements that are not installed, or in another version, each with what is there instead."""
    from packaging.requirements import Requirement

    lacking = []
    for requirement in map(Requirement, requirements):
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            lacking.append(str(requirement))
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            lacking.append(f"{requirement} (found {version})")
    return lacking


def main(groups: list[str]) -> int:
    """Prints one message and returns 2 if anything is missing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    in_checkout = project["tool"]["uv"]["sources"]  # make puts them on the path
    wanted = [one for one in project["project"]["dependencies"] if one.split(">")[0] not in in_checkout]
    for group in groups:
        wanted += project["dependency-groups"][group]
    try:
        lacking = missing(wanted)
    except ModuleNotFoundError:
        lacking = ["packaging"]  # reads versions; lightning and torchmetrics bring it
    if not lacking:
        return 0
    install = " ".join(["-m pip install ./recorder .", *(f"--group {group}" for group in groups)])
    print(
        f"expected a Python with the dependencies in pyproject.toml; {sys.executable} lacks {', '.join(lacking)}. "
        f"Run `{sys.executable} {install}`, or omit PYTHON=: make then makes an environment of its own.",
        file=sys.stderr,
    )
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
