"""Steps after the attacks of a cell: comparisons that a table reports next to the scores of attacks.

Those that need the attacks, data and learners of one family lie in ``callbacks/steps/``, and are found there.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from fedleak.core import named
from fedleak.core.additions import room
from fedleak.core.class_paths import named_classes
from fedleak.core.errors import require
from fedleak.evaluation.steps import RECORDING_STEPS, Step
from fedleak.tables.after.step import AfterStep

STEPS: dict[str, type[Step]] = {
    **named_classes(sys.modules[__name__], AfterStep),
    **named_classes(room("callbacks.steps"), AfterStep),
    **RECORDING_STEPS,
}
"""Every step of this package, of ``callbacks/steps/`` and of `fedleak.evaluation.steps`, by its name."""

__all__ = ["STEPS", "AfterStep", "after_steps"]


_KIND = named.Kind(base=Step, noun="a step of `after`", names=STEPS.keys, class_of=STEPS.__getitem__)


def after_steps(entries: Sequence[str | Mapping[str, Any]]) -> list[Step]:
    """Steps of a table, given by name or class path, or as a mapping of the name to its options.

    Raises:
        InputError: a step or an option is unknown, or an option has a wrong value.
    """
    steps: list[Step] = []
    for step in entries:
        options_by_name = {step: None} if isinstance(step, str) else dict(step)
        expected = "one step of `after`, as NAME or NAME: {OPTION: VALUE}"
        require(len(options_by_name) == 1, expected, repr(step), "Begin each step with a dash of its own.")
        ((name, options),) = options_by_name.items()
        steps.append(named.make(_KIND, str(name), options))
    return steps
