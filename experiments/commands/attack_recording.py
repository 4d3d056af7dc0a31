"""What the commands that attack a recording share."""

from pathlib import Path

from protocol.errors import require

_SEEDS = 2**63


def folder_above(deltas: str) -> Path:
    """Parent folder of a recording."""
    return Path(deltas).resolve().parent


def check_numbers(*, seed: int = 0, victims: int | None = None, seeds: int = 1) -> None:
    """Checks the ranges of options that several commands have.

    Raises:
        InputError: an option is out of its range.
    """
    require(0 <= seed < _SEEDS, "--seed from 0 to 2**63 - 1", seed, "Set a seed in this range.")
    for name, number in (("--victims", victims), ("--seeds", seeds)):
        require(number is None or number >= 1, f"{name} of at least 1", number, "Set at least 1, or omit it.")
