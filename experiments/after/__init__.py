"""Steps after the attacks of a cell: comparisons that a table reports next to the scores of attacks."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.after.attribute_ceiling import AttributeCeiling
from experiments.after.bounds import Bounds
from experiments.after.class_gradients import GradientChanges
from experiments.after.devices import Maps, Profiles, RawData, UserBias
from experiments.after.held_back import HeldBack
from experiments.after.identifiability import Clients, Privacy, ProbeCheckStep, Reached, Sharpness, Theorem
from experiments.after.image_quality import ImageQuality
from experiments.after.manipulation_checks import ManipulationChecks
from experiments.after.model_quality import Accuracy, Quality, Utility
from experiments.after.step import AfterStep
from experiments.after.update_maps import UpdateMaps
from experiments.overrides import near
from protocol.errors import InputError

_KINDS: tuple[type[AfterStep], ...] = (
    *(Accuracy, GradientChanges, Quality, Utility),
    *(AttributeCeiling, Bounds, HeldBack, ManipulationChecks),
    *(ImageQuality, UpdateMaps),
    *(Clients, Privacy, ProbeCheckStep, Reached, Sharpness, Theorem),
    *(Maps, Profiles, RawData, UserBias),
)
STEPS: dict[str, type[AfterStep]] = {kind.name: kind for kind in _KINDS}

__all__ = ["STEPS", "AfterStep", "after_steps"]


def after_steps(entries: Sequence[str | Mapping[str, Any]]) -> list[AfterStep]:
    """Steps of a table, given by name or as a mapping of the name to its options.

    Raises:
        InputError: a step or an option is unknown.
    """
    made = []
    for entry in entries:
        (name, options), *others = [(entry, {})] if isinstance(entry, str) else list(entry.items()) or [("", {})]
        if others or name not in STEPS:
            raise InputError(
                expected=f"steps of `after` among {', '.join(STEPS)}",
                found=repr(entry),
                way_out=near(str(name), STEPS) or "Correct `after`.",
            )
        try:
            made.append(STEPS[name](**(options or {})))
        except (TypeError, ValueError) as error:
            raise InputError(
                expected=f"options of the step {name}", found=str(error), way_out="Correct `after`."
            ) from None
    return made
