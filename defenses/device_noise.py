"""Noise on what some devices send: deanonymization's baseline, random perturbation (section 7.1, equation 7)."""

import dataclasses
from collections.abc import Callable, Collection

import torch

from defenses.base import Defense, Update
from errors import InputError


class DeviceNoise(Defense):
    """Adds independent Gaussian noise to every number that a device sends; nothing is clipped, so no budget follows.

    Of a table that is sent in rows, the rows of the device's own examples are noised: the others are not sent.

    Args:
        variance: of the noise (the paper: 0.01 to 100).
        clients: numbers of the devices that do so, None for all.
    """

    def __init__(self, *, variance: float, clients: Collection[int] | None = None) -> None:
        if variance < 0:
            raise InputError(expected="variance of at least 0", found=str(variance), way_out="0 is no noise.")
        self.scale = variance**0.5
        self.clients = None if clients is None else frozenset(clients)

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        """See `Defense.protect`."""
        assert update.clients is not None
        deltas = {name: value.clone() for name, value in update.deltas.items()}
        for position, client in enumerate(update.clients.tolist()):
            if self.clients is not None and client not in self.clients:
                continue
            generator = generators(position)
            for name in sorted(deltas):
                own = deltas[name][position]
                own += self.scale * torch.randn(own.shape, generator=generator).to(own)
        for name in update.rows:
            deltas[name] *= update.row_mask(name)
        return dataclasses.replace(update, deltas=deltas)
