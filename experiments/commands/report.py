"""``attack.py report``: one page for several runs."""

from pathlib import Path
from typing import Any

from reports.join import join_runs

POSITIONAL: dict[str, Any] = {"directories": {"nargs": "+", "type": str, "help": "folders that hold a results.json"}}


def report(directories: list[str], out: str = "runs/report") -> int:
    """Joins the results of several runs into one page.

    Args:
        directories: folders that hold a results.json.
        out: folder of the page.
    """
    join_runs([Path(directory) for directory in directories], Path(out))
    return 0
