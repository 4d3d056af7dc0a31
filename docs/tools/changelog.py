"""Release of a version: the texts in changes/ become its part of CHANGELOG.md, and all files state its number.

python -m docs.tools.changelog 0.3.0
"""

import argparse
import datetime
import re
import sys
from pathlib import Path

from docs.tools.versions import set_version, stated_versions
from fedleak_recorder.errors import InputError, require

ROOT = Path(__file__).resolve().parents[2]
HEADING = re.compile(r"^## (\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\)$", re.MULTILINE)
"""Heading of a release."""
_README = "README.md"
"""File of changes/ that says how to write the others."""
_MOST_LINES = 3
"""Lines of a text of changes/, so that ten of them can be read at once."""
_LONGEST_LINE = 120


def main(words: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="number of the release, e.g. 0.3.0")
    version = parser.parse_args(words).version
    try:
        release(ROOT, version, datetime.datetime.now(datetime.UTC).date())
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"CHANGELOG.md has {version}, and so have {', '.join(stated_versions(ROOT))}.")
    return 0


def release(root: Path, version: str, date: datetime.date) -> None:
    """Moves the texts of changes/ into CHANGELOG.md under a new heading, and sets the version.

    Args:
        root: folder of the checkout.
        version: number of the release.
        date: of the release.

    Raises:
        InputError: the version is no next one, or there is no text, or one is of another form; nothing is changed then.
    """
    changelog = root / "CHANGELOG.md"
    before = changelog.read_text(encoding="utf-8")
    _check_next(version, newest_release(before))
    fragments = sorted(path for path in (root / "changes").glob("*.md") if path.name != _README)
    require(fragments, "texts in changes/ on what is new", "none", "Write one as changes/README.md says.")
    texts = [checked_fragment(path) for path in fragments]
    # The newest release stands first, so the new part goes before its heading.
    newest_heading = HEADING.search(before)
    assert newest_heading is not None
    start = newest_heading.start()
    part = f"## {version} ({date.isoformat()})\n\n" + "\n".join(texts) + "\n\n"
    changelog.write_text(before[:start] + part + before[start:], encoding="utf-8")
    for path in fragments:
        path.unlink()
    set_version(root, version)


def newest_release(changelog: str) -> str:
    """Number of the first release of a changelog."""
    heading = HEADING.search(changelog)
    if heading is None:
        expected = "a heading such as `## 0.2.0 (2026-11-28)` in CHANGELOG.md"
        raise InputError(expected=expected, found="none", way_out="Write it.")
    return heading[1]


def checked_fragment(path: Path) -> str:
    """Text of a file of changes/: one point of a list.

    Raises:
        InputError: it is of another form.
    """
    text = path.read_text(encoding="utf-8").strip()
    lines = text.splitlines()
    # One point of a list: its further lines are indented below the first.
    is_point = text.startswith("* ") and all(line.startswith("  ") for line in lines[1:])
    is_short = len(lines) <= _MOST_LINES and all(len(line) <= _LONGEST_LINE for line in lines)
    expected = (
        f"one point of a list, `* ` and at most {_MOST_LINES} lines of {_LONGEST_LINE} characters, in {path.name}"
    )
    require(is_point and is_short, expected, repr(text[:60]), "See changes/README.md.")
    return text


def _check_next(version: str, newest: str) -> None:
    form = re.fullmatch(r"\d+\.\d+\.\d+", version)
    is_next = form is not None and _parts(version) > _parts(newest)
    require(is_next, f"a version after {newest}, such as 0.3.0", repr(version), "Give the next number.")


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


if __name__ == "__main__":
    sys.exit(main())
