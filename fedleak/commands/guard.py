"""``fedleak guard``: the command of the guard, a distribution of its own, if it is installed."""

import importlib
import importlib.util
from collections.abc import Sequence

from fedleak.commands.shared.command import CommandWithParser
from fedleak.core.errors import require

_PACKAGE = "fedleak_guard"
"""It is found by its name alone: the guard must work without this package, and this one without the guard."""


def run(args: Sequence[str]) -> int:
    """Runs ``fedleak-guard`` with some arguments; returns its exit status.

    Raises:
        InputError: the guard is not installed.
    """
    installed = importlib.util.find_spec(_PACKAGE) is not None
    way_out = "Install it in this environment, e.g. `pip install ./guard` in the checkout, see guard/README.md."
    require(installed, "the distribution fedleak-guard", "none", way_out)
    command = importlib.import_module(f"{_PACKAGE}.command")
    return int(command.main([*args]))


COMMAND = CommandWithParser(
    heading="sites",
    place=60,
    summary="the guard of a site that sends, if it is installed: fedleak guard --help",
    run=run,
)
