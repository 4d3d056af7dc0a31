"""Last lines of a command: where its files are, and what to run next."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

_RESULTS = {
    "report": ("report.html",),
    "statement": ("statement.html", "statement.json"),
    "results": ("results.json", "scores.csv", "gate.xml"),
}


def results_in(directory: Path) -> dict[str, list[Path]]:
    """Files of results in a folder by what they are."""
    return {name: [directory / file for file in files] for name, files in _RESULTS.items()}


def print_outputs(places: Mapping[str, Sequence[Path]], *, then: str) -> None:
    """Prints the files and folders that exist, by what they are, and the next command."""
    for name, paths in places.items():
        present = [str(path) for path in paths if path.exists()]
        if present:
            print(f"{name}: {', '.join(present)}")
    print(f"next: {then}")


def shell_command(*words: str | Path, program: str = "attack.py", why: str = "") -> str:
    """Command line, quoted for a shell, with a remark on what it does."""
    command = shlex.join(["python", program, *map(str, words)])
    return f"{command}  # {why}" if why else command
