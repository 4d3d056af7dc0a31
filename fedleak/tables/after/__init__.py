"""Steps after the attacks of a cell: comparisons that a table reports next to the scores of attacks.

Those that need the attacks, data and learners of one family lie in ``callbacks/steps/``, and are found there.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from fedleak.core.additions import room
from fedleak.core.class_paths import class_at, named_classes
from fedleak.core.errors import InputError
from fedleak.evaluation.steps import RECORDING_STEPS, Step
from fedleak.tables.after.step import AfterStep
from fedleak.tables.overrides import near

STEPS: dict[str, type[Step]] = {
    **named_classes(sys.modules[__name__], AfterStep),
    **named_classes(room("callbacks.steps"), AfterStep),
    **RECORDING_STEPS,
}
"""Every step of this package, of ``callbacks/steps/`` and of `fedleak.evaluation.steps`, by its name."""

__all__ = ["STEPS", "AfterStep", "after_steps"]


def after_steps(entries: Sequence[str | Mapping[str, Any]]) -> list[Step]:
    """Steps of a table, given by name or class path, or as a mapping of the name to its options.

    Raises:
        InputError: a step or an option is unknown.
    """
    made: list[Step] = []
    for entry in entries:
        (name, options), *others = [(entry, {})] if isinstance(entry, str) else list(entry.items()) or [("", {})]
        outside = isinstance(name, str) and "." in name
        if others or not (outside or name in STEPS):
            raise InputError(
                expected=f"steps of `after` among {', '.join(sorted(STEPS))}, or the path of a class",
                found=repr(entry),
                way_out=near(str(name), STEPS) or "Correct `after`.",
            )
        kind = class_at(name, Step) if outside else STEPS[name]
        try:
            made.append(kind(**(options or {})))
        except (TypeError, ValueError) as error:
            expected = f"options of the step {name}"
            raise InputError(expected=expected, found=str(error), way_out="Correct `after`.") from None
    return made
