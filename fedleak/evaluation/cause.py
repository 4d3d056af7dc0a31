"""A likely cause of an attack's failure."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedleak.evaluation.result_names import setting_of

POSSIBLE = "possible-noise"
"""Cause that is named only where no other is."""


@dataclass(frozen=True)
class Cause:
    """Likely cause of an attack's failure.

    Attributes:
        cause: ``noise``, ``possible-noise``, ``rank``, ``steps``, ``silence`` or one of
            `fedleak.evaluation.causes_in_numbers`, from the views; ``few-victims``, ``attack``, ``no-reconstruction``
            or ``unknown``, from the results.
        sentence: sentence of the report, without the attack's name.
        measured: numbers of the sentence.
        metrics: metrics of the attacks that it can explain, None for all.
        attack: label of the attack that failed, empty for a cause that is not attributed to an attack.
        setting: cell of that attack.
        metric: metric that judges it.
    """

    cause: str
    sentence: str
    measured: dict[str, float]
    metrics: tuple[str, ...] | None = None
    attack: str = ""
    setting: dict[str, Any] = field(default_factory=dict)
    metric: str = ""

    def of(self, row: Mapping[str, Any]) -> "Cause":
        """The cause, attributed to the attack of a row of results."""
        return dataclasses.replace(self, attack=row["attack"], setting=setting_of(row), metric=row["metric"])
