"""Losses of the margin ``z = y u.v``.

References:
    [London20], Assumption 2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from fedleak.core.errors import require

LossName = Literal["margin", "hinge", "log", "perceptron"]


@dataclass(frozen=True)
class MarginLoss:
    """A loss ``value`` ``l(z)`` and its derivative ``slope`` ``l'(z)``, elementwise; at a kink, torch's derivative."""

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]

    @property
    def slope_at_zero(self) -> float:
        """``l'(0)``."""
        return float(self.slope(torch.zeros((), dtype=torch.float64)))


LOSSES: dict[str, MarginLoss] = {
    "margin": MarginLoss(lambda z: -z, lambda z: torch.full_like(z, -1.0)),
    "hinge": MarginLoss(lambda z: functional.relu(1 - z), lambda z: -(z < 1).to(z.dtype)),
    "log": MarginLoss(lambda z: functional.softplus(-z), lambda z: -torch.sigmoid(-z)),
    "perceptron": MarginLoss(lambda z: functional.relu(-z), lambda z: -(z < 0).to(z.dtype)),
}
"""Negative margin, hinge and log loss satisfy Assumption 2; the perceptron loss is flat at 0 and does not."""


def margin_loss(name: str) -> MarginLoss:
    """The loss with the given name.

    Raises:
        InputError: there is no such loss.
    """
    require(name in LOSSES, f"a loss among {', '.join(LOSSES)}", repr(name), "Fix the name.")
    return LOSSES[name]


def check_assumption_2(name: str) -> float:
    """The slope at 0 of the loss with the given name.

    Raises:
        InputError: it is 0, so that Assumption 2 does not hold.
    """
    slope = margin_loss(name).slope_at_zero
    require(
        slope != 0,
        "a loss whose derivative at 0 is not zero (Assumption 2)",
        f"loss {name!r}, which is flat there: clients with all-zero items send nothing",
        "Choose margin, hinge or log.",
    )
    return slope
