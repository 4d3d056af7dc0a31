"""L1 regularisation of the update."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from fedleak.core.errors import require
from fedleak.defenses.base import Defense


class UpdateL1(Defense):
    """Adds ``strength * mean |current - received|`` to a client's loss, which shrinks its update.

    For an item table, the mean is over the client's own rows, as in RAIFLE's published code (its mu). A mean over the
    whole catalogue would weaken the penalty by the ratio of the catalogue to the client's items.

    Args:
        strength: weight of the penalty, >= 0.
        reduction: ``mean`` over the numbers that the client trains, or ``sum``.
        parameters: public parameters whose change is penalised; their penalties add up.

    References:
        [Yuan23]; RAIFLE, section VI.A and table VI.
    """

    def __init__(
        self,
        *,
        strength: float,
        reduction: Literal["mean", "sum"] = "mean",
        parameters: Sequence[str] = ("item_embedding.weight",),
    ) -> None:
        is_valid = math.isfinite(strength) and strength >= 0
        require(is_valid, "UpdateL1.strength of 0 or more", f"{strength:g}", "RAIFLE's tables use 0 and 1.")
        self.strength = strength
        self.reduction = reduction
        self.parameters = list(parameters)

    def penalty(
        self, parameters: Mapping[str, Tensor], received: Mapping[str, Tensor], elements: Mapping[str, Tensor]
    ) -> Tensor | None:
        unknown = [name for name in self.parameters if name not in parameters]
        expected = f"UpdateL1.parameters among {', '.join(parameters)}"
        require(not unknown, expected, ", ".join(unknown), "Correct the names in the configuration.")
        if self.strength == 0 or not self.parameters:
            return None
        terms = []
        for name in self.parameters:
            # Padded rows are as received and add 0.
            term = (parameters[name] - received[name]).abs().flatten(1).sum(1)
            if self.reduction == "mean":
                term = term / elements[name].clamp(min=1)
            terms.append(term)
        return self.strength * torch.stack(terms).sum(0)
