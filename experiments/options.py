"""What configurations of experiments hold: names out of a list, and numbers that may be infinite."""

from collections.abc import Sequence
from typing import Any

from errors import InputError


def check_names(kind: str, given: Sequence[str], known: Sequence[str]) -> None:
    """Refuses a name that is not known.

    Raises:
        InputError: one of `given` is not in `known`.
    """
    unknown = [name for name in given if name not in known]
    if unknown:
        raise InputError(
            expected=f"{kind}s among {', '.join(known)}", found=unknown[0], way_out=f"Mend the name of the {kind}."
        )


def as_number(name: str, value: Any) -> float:
    """A number from a configuration; a budget written as ``inf`` in YAML is text.

    Raises:
        InputError: it is none.
    """
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(expected=f"a number as {name}", found=repr(value), way_out="Mend the cell.") from None


def plain_number(value: float) -> float | int | str:
    """As results.json has it: whole numbers whole, infinity as ``inf``."""
    if value == float("inf"):
        return "inf"
    return int(value) if float(value).is_integer() else value
