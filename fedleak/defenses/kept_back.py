"""Parameters whose changes a client keeps back."""

import dataclasses
from collections.abc import Callable
from fnmatch import fnmatchcase

import torch

from fedleak.core.errors import require
from fedleak.defenses.base import Defense, Update


class KeptBack(Defense):
    """Partial sharing: a client sends zeros for the parameters that stay as they were, e.g. the A of its adapters.

    It hides nothing of what the other parameters tell.

    Args:
        parameters: glob patterns of the names.

    References:
        [Arivazhagan19]; [Sun24] (a frozen A).
    """

    def __init__(self, *, parameters: list[str]) -> None:
        require(parameters, "KeptBack.parameters", "an empty list", "Name parameters, e.g. '*lora_A*'.")
        self.parameters = parameters

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        deltas = dict(update.deltas)
        is_any_kept_back = False
        for name, delta in update.deltas.items():
            if any(fnmatchcase(name, pattern) for pattern in self.parameters):
                deltas[name] = torch.zeros_like(delta)
                is_any_kept_back = True
        names = ", ".join(update.deltas)
        patterns = ", ".join(self.parameters)
        require(is_any_kept_back, f"KeptBack.parameters to match some of {names}", patterns, "Correct the patterns.")
        return dataclasses.replace(update, deltas=deltas)
