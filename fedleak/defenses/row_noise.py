"""Noise on the changed rows of an item table."""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from fedleak.core.errors import InputError, require
from fedleak.core.release import Release
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.defenses.base import Defense, Update


class RowNoise(Defense):
    """Noisy messages: adds N(0, scale^2) to the rows that a client changed; other rows are sent as zero.

    It stays visible which rows changed, so this does not hide *which* items a client has; `LocalDP` adds noise to all
    rows. With clipped gradients (`FederatedMF`) it is a mechanism for the changed rows alone, whose epsilon the step
    `privacy` of a table adds up.

    Args:
        scale: standard deviation of the noise, >= 0.
        parameter: the row parameter.

    References:
        [London20], Equation 3.
    """

    def __init__(self, *, scale: float, parameter: str = ITEM_EMBEDDING) -> None:
        require(scale >= 0, "RowNoise.scale of 0 or more", f"{scale:g}", "Give 0 for no noise.")
        self.scale = scale
        self.parameter = parameter

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        if self.scale == 0:
            return update
        if self.parameter not in update.rows:
            raise InputError(
                expected=f"RowNoise.parameter among those sent in rows: {', '.join(update.rows) or 'none here'}",
                found=self.parameter,
                way_out="Correct the name, or use DeviceNoise for a learner that sends whole parameters.",
            )
        noisy = update.deltas[self.parameter].clone()
        for client, delta in enumerate(noisy):
            # Noise is drawn for the changed rows only, whose number the server sees anyway.
            is_changed = delta.abs().sum(1) > 0
            draw: Tensor = torch.randn(int(is_changed.sum()), delta.shape[1], generator=generators(client))
            delta[is_changed] += self.scale * draw.to(delta)
        return dataclasses.replace(update, deltas={**update.deltas, self.parameter: noisy})

    def releases(self, parameters: tuple[str, ...]) -> tuple[Release, ...]:
        if not self.scale:
            return ()
        return (Release(noise_scale=self.scale, parameters=(self.parameter,)),)
