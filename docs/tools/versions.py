"""Version of the project: the same number in every file that states it, and how it is set in all of them.

The three distributions are released together. Their build tools need the number in a file of each, so that it cannot
stand in one file alone; `STATED` lists the files, a test holds them equal, and `docs.tools.changelog` sets them.
"""

import re
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from fedleak_recorder.errors import InputError

_NUMBER = r"(?P<version>\d+\.\d+\.\d+)"
STATED = {
    "*pyproject.toml": rf'^version = "{_NUMBER}"',
    "*__init__.py": rf'^__version__ = "{_NUMBER}"',
    "CITATION.cff": rf"^version: {_NUMBER}$",
    "*sarif_log.py": rf'"semanticVersion": "{_NUMBER}"',
    "recorder/README.md": rf"\bVersion {_NUMBER}",
    "guard/README.md": rf"\bVersion {_NUMBER}",
    "docs/audit/record-your-system.md": rf"^Version {_NUMBER} writes",
}
"""By pattern of a file's path: how the version stands there. A star also stands for folders."""


def stated_versions(root: Path) -> dict[str, str]:
    """The version that each file of a checkout states, by path.

    Args:
        root: folder of the checkout.

    Raises:
        InputError: no file of a pattern of `STATED` states one.
    """
    versions: dict[str, str] = {}
    for pattern, statement in STATED.items():
        of_pattern: dict[str, str] = {}
        for path in _files(root, pattern):
            match = re.search(statement, path.read_text(encoding="utf-8"), re.MULTILINE)
            if match:
                of_pattern[str(path.relative_to(root))] = match["version"]
        if not of_pattern:
            way_out = "Correct STATED in docs/tools/versions.py."
            raise InputError(expected=f"a version in {pattern}", found="none", way_out=way_out)
        versions |= of_pattern
    return versions


def set_version(root: Path, version: str) -> None:
    """Writes a version into every file that states one."""
    for pattern, statement in STATED.items():
        for path in _files(root, pattern):
            text = path.read_text(encoding="utf-8")
            match = re.search(statement, text, re.MULTILINE)
            if match:
                start, end = match.span("version")
                path.write_text(text[:start] + version + text[end:], encoding="utf-8")


def _files(root: Path, pattern: str) -> Iterator[Path]:
    """Files of a checkout that git knows and whose path fits a pattern."""
    command = ["git", "ls-files", "-z"]
    listing = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listing.split("\0")):
        path = root / name
        # A linked folder is listed as one name, and its files under their own.
        if fnmatch(name, pattern) and path.is_file() and not path.is_symlink():
            yield path
