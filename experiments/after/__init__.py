"""What a table shows next to the scores of attacks: a small closed list of steps."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.after.accuracy import Accuracy
from experiments.after.bounds import Bounds
from experiments.after.held_back import HeldBack
from experiments.after.identifiability import Clients, ProbeCheckStep, Reached, Theorem
from experiments.after.image_quality import ImageQuality
from experiments.after.manipulation_checks import ManipulationChecks
from experiments.after.maps import Maps
from experiments.after.profiles import Profiles
from experiments.after.quality import Quality
from experiments.after.raw_data import RawData
from experiments.after.step import AfterStep
from experiments.after.user_bias import UserBias
from experiments.after.utility import Utility
from experiments.overrides import near
from protocol.errors import InputError

_KINDS: tuple[type[AfterStep], ...] = (
    *(Accuracy, Quality, Utility),
    *(Bounds, HeldBack, ManipulationChecks),
    ImageQuality,
    *(Clients, ProbeCheckStep, Reached, Theorem),
    *(Maps, Profiles, RawData, UserBias),
)
STEPS: dict[str, type[AfterStep]] = {kind.name: kind for kind in _KINDS}

__all__ = ["STEPS", "AfterStep", "after_steps"]


def after_steps(entries: Sequence[str | Mapping[str, Any]]) -> list[AfterStep]:
    """The steps of a table: names, each with its options where it is a mapping.

    Raises:
        InputError: there is no such step, or it has no such option.
    """
    made = []
    for entry in entries:
        (name, options), *others = [(entry, {})] if isinstance(entry, str) else list(entry.items())
        if others or name not in STEPS:
            raise InputError(
                expected=f"steps of `after` among {', '.join(STEPS)}",
                found=repr(entry),
                way_out=near(str(name), STEPS) or "Fix `after`.",
            )
        try:
            made.append(STEPS[name](**(options or {})))
        except (TypeError, ValueError) as error:
            raise InputError(expected=f"options of the step {name}", found=str(error), way_out="Fix `after`.") from None
    return made
