"""A defence that rounds updates, and a manipulation that scales features."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from defenses.base import Defense, Update
from server import FeatureManipulation, Notice


class Rounding(Defense):
    """Rounding of every number of an update.

    Args:
        step: distance between two numbers that can be sent.
    """

    def __init__(self, *, step: float) -> None:
        self.step = step

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        rounded = {name: (value / self.step).round() * self.step for name, value in update.deltas.items()}
        return dataclasses.replace(update, deltas=rounded)


@dataclass(frozen=True, kw_only=True)
class Scaled(FeatureManipulation):
    """All features times a factor.

    Args:
        factor: any number.
    """

    name = "scaled"
    does = "multiplies all features by a factor"
    noticed = (Notice("client", "values outside the usual range"),)

    factor: float = 2.0

    def features(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generator: torch.Generator
    ) -> Tensor:
        return features * self.factor
