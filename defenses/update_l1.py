"""L1 regularisation of the update: the defence that comes with the interaction-level membership attack, IMIA."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from defenses.base import Defense
from protocol.errors import InputError


class UpdateL1(Defense):
    """Adds ``strength * mean |current - received|`` to a client's loss, so that its update shrinks.

    Of an item table, the mean runs over the numbers of the client's own rows, as in RAIFLE's published code (its mu,
    section VI.A, table VI; the defence is that of IMIA, Yuan et al. 2023). A mean over the whole catalogue would weaken
    the penalty by the ratio of the catalogue to the client's items.

    Args:
        strength: weight of the penalty, >= 0; 0 does nothing.
        reduction: ``mean`` over the numbers that the client trains, or ``sum``.
        parameters: public parameters whose change is penalised; their penalties add up.

    Raises:
        InputError: `strength` is negative or not finite, or a parameter does not exist.
    """

    def __init__(
        self,
        *,
        strength: float,
        reduction: Literal["mean", "sum"] = "mean",
        parameters: Sequence[str] = ("item_embedding.weight",),
    ) -> None:
        if not (math.isfinite(strength) and strength >= 0):
            raise InputError(
                expected="UpdateL1.strength of 0 or more",
                found=f"{strength:g}",
                way_out="RAIFLE's tables use 0 and 1.",
            )
        self.strength = strength
        self.reduction = reduction
        self.parameters = list(parameters)

    def penalty(
        self, parameters: Mapping[str, Tensor], received: Mapping[str, Tensor], elements: Mapping[str, Tensor]
    ) -> Tensor | None:
        self._refuse_unknown(tuple(parameters))
        if self.strength == 0 or not self.parameters:
            return None
        terms = [self._term(parameters[name], received[name], elements[name]) for name in self.parameters]
        return self.strength * torch.stack(terms).sum(0)

    def _term(self, current: Tensor, received: Tensor, elements: Tensor) -> Tensor:
        """``(C, ...)``, ``(C, ...)``, ``(C,)`` -> ``(C,)``; padded rows are as they were received and add 0."""
        total = (current - received).abs().flatten(1).sum(1)
        return total / elements.clamp(min=1) if self.reduction == "mean" else total

    def _refuse_unknown(self, known: tuple[str, ...]) -> None:
        unknown = [name for name in self.parameters if name not in known]
        if unknown:
            raise InputError(
                expected=f"UpdateL1.parameters among {', '.join(known)}",
                found=", ".join(unknown),
                way_out="Correct the names in the configuration.",
            )
