"""Noise on what some devices send: deanonymization's baseline, random perturbation (section 7.1, equation 7)."""

import dataclasses
from collections.abc import Callable, Collection
from typing import Literal

import torch
from torch import Tensor

from defenses.base import Defense, Update
from protocol.errors import InputError
from protocol.view import Release


class DeviceNoise(Defense):
    """Adds independent Gaussian noise to every number that a device sends; nothing is clipped, so no budget follows.

    Of a table that is sent in rows, the rows of the device's own examples are noised: the others are not sent.

    Args:
        variance: of the noise (the paper: 0.01 to 100).
        clients: numbers of the devices that do so; ``anonymous`` for those that are not the adversary's own; None for
            all.
    """

    def __init__(self, *, variance: float, clients: Collection[int] | Literal["anonymous"] | None = None) -> None:
        if variance < 0:
            raise InputError(expected="variance of at least 0", found=str(variance), way_out="0 is no noise.")
        self.variance, self.scale = variance, variance**0.5
        self.clients = clients
        self._numbers = frozenset() if clients is None or clients == "anonymous" else frozenset(clients)

    def prepare(self, known: Tensor | None) -> None:
        """See `Defense.prepare`.

        Raises:
            InputError: the anonymous devices are meant, and the data have none.
        """
        if self.clients != "anonymous":
            return
        if known is None:
            raise InputError(
                expected="data whose users have an anonymous device and one that the adversary knows",
                found="others, under DeviceNoise(clients=anonymous)",
                way_out="Give such data, e.g. Blog or SyntheticPosts, or leave `clients` out.",
            )
        self._numbers = frozenset((~known).nonzero().flatten().tolist())

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        deltas = {name: value.clone() for name, value in update.deltas.items()}
        for position in self._noised(update):
            generator = generators(position)
            for name in sorted(deltas):
                own = deltas[name][position]
                own += self.scale * torch.randn(own.shape, generator=generator).to(own)
        for name in update.rows:
            deltas[name] *= update.row_mask(name)
        return dataclasses.replace(update, deltas=deltas)

    def _noised(self, update: Update) -> list[int]:
        """Positions in the cohort of the devices that add noise."""
        if self.clients is None:
            return list(range(len(next(iter(update.deltas.values())))))
        assert update.clients is not None
        return [position for position, client in enumerate(update.clients.tolist()) if client in self._numbers]

    def releases(self, parameters: tuple[str, ...]) -> tuple[Release, ...]:
        """The scale of the noise, where all devices add it; who does so is not public where only some do."""
        if self.scale == 0 or self.clients is not None:
            return ()
        return (Release(noise_scale=self.scale, parameters=parameters),)
