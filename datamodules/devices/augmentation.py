"""Hiding in a crowd: what a device mixes into its data before it trains (deanonymization, section 7.1)."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from protocol.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Mitigation:
    """What the anonymous devices do with background examples.

    Attributes:
        kind: ``bkg-repl`` replaces a share of the examples; ``rand-aug`` adds to them (equation 8); ``mm-aug`` adds
            from one cluster of the background, which each device picks at random (equation 9).
        amount: alpha, as a share of the device's examples; at most 1 where they are replaced.
        modes: clusters of ``mm-aug`` (the paper: 100 for PIPA, 500 for OpenImages, 300 for Blog and Yelp).
    """

    kind: Literal["bkg-repl", "rand-aug", "mm-aug"]
    amount: float
    modes: int = 300

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        most = 1.0 if self.kind == "bkg-repl" else float("inf")
        if self.kind not in ("bkg-repl", "rand-aug", "mm-aug") or not 0 <= self.amount <= most or self.modes < 1:
            raise InputError(
                expected="kind bkg-repl with an amount from 0 to 1, or rand-aug or mm-aug with one of at least 0",
                found=f"{self.kind}, amount {self.amount}, modes {self.modes}",
                way_out="The paper has alpha 0 to 1 for replacing, 0 to 2 for adding.",
            )


def mixed_in(
    own: Tensor, mitigation: Mitigation, *, background: Tensor, modes: Tensor | None, generator: torch.Generator
) -> Tensor:
    """What a device trains on.

    Args:
        own: ``(n,)`` numbers of its examples.
        mitigation: what it does.
        background: ``(M,)`` numbers of the background examples; more are drawn than there are only by repeating.
        modes: ``(M,)`` cluster of each; needed for ``mm-aug``.
        generator: of this device's draws.

    Returns:
        Numbers of examples: what is left of its own first.
    """
    wanted = round(mitigation.amount * len(own))
    crowd = background
    if mitigation.kind == "mm-aug":
        assert modes is not None
        present = torch.unique(modes)
        crowd = background[modes == present[torch.randint(len(present), (), generator=generator)]]
    if mitigation.kind == "bkg-repl":
        own = own[torch.randperm(len(own), generator=generator)[wanted:]].sort().values
    return torch.cat([own, _draw(crowd, wanted, generator)])


def _draw(crowd: Tensor, wanted: int, generator: torch.Generator) -> Tensor:
    """Without repetition as long as there is something new."""
    whole, rest = divmod(wanted, len(crowd))
    rounds = [torch.randperm(len(crowd), generator=generator)[:size] for size in [len(crowd)] * whole + [rest]]
    return crowd[torch.cat(rounds)]
