"""A defence that rounds updates."""

import dataclasses
from collections.abc import Callable

import torch

from fedleak.defenses.base import Defense, Update


class Rounding(Defense):
    """Rounding of every number of an update.

    Args:
        step: distance between two numbers that can be sent.
    """

    def __init__(self, *, step: float = 0.01) -> None:
        self.step = step

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        rounded = {name: (value / self.step).round() * self.step for name, value in update.deltas.items()}
        return dataclasses.replace(update, deltas=rounded)
