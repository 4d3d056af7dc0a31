"""Noise on the updates of some devices."""

import dataclasses
from collections.abc import Callable, Collection
from typing import Literal

import torch
from torch import Tensor

from fedleak.core.errors import InputError, require
from fedleak.core.release import Release
from fedleak.defenses.base import Defense, Update


class DeviceNoise(Defense):
    """Random perturbation: independent Gaussian noise on the update, without clipping.

    There is no privacy budget without clipping. For a table that is sent in rows, only the rows of the device's own
    examples are noised; the others are not sent.

    Args:
        variance: variance of the noise (0.01 to 100 in the paper).
        clients: numbers of the devices that add noise; ``anonymous`` for those that are not the adversary's own; None
            for all.

    References:
        [Orekondy18], section 7.1, equation 7.
    """

    def __init__(self, *, variance: float, clients: Collection[int] | Literal["anonymous"] | None = None) -> None:
        require(variance >= 0, "variance of at least 0", variance, "0 is no noise.")
        self.variance = variance
        self.scale = variance**0.5
        self.clients = clients
        self._numbers: frozenset[int] = frozenset()
        if clients is not None and clients != "anonymous":
            self._numbers = frozenset(clients)

    def prepare(self, is_adversarys: Tensor | None) -> None:
        if self.clients != "anonymous":
            return
        if is_adversarys is None:
            raise InputError(
                expected="data whose users have an anonymous device and one that the adversary knows",
                found="others, under DeviceNoise(clients=anonymous)",
                way_out="Give such data, e.g. Blog or SyntheticPosts, or leave `clients` out.",
            )
        self._numbers = frozenset((~is_adversarys).nonzero().flatten().tolist())

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        deltas = {name: delta.clone() for name, delta in update.deltas.items()}
        assert self.clients is None or update.clients is not None
        count = len(next(iter(deltas.values())))
        clients = list(range(count)) if update.clients is None else update.clients.tolist()
        for position, client in enumerate(clients):
            if self.clients is not None and client not in self._numbers:
                continue
            generator = generators(position)
            # In the order of names, so that the noise does not depend on the order of the deltas.
            for name in sorted(deltas):
                client_delta = deltas[name][position]
                client_delta += self.scale * torch.randn(client_delta.shape, generator=generator).to(client_delta)
        # Padded rows are not sent.
        for name in update.rows:
            deltas[name] *= update.row_mask(name)
        return dataclasses.replace(update, deltas=deltas)

    def releases(self, parameters: tuple[str, ...]) -> tuple[Release, ...]:
        """The scale of the noise if all devices add it, or all but the adversary's own; otherwise it is not public."""
        if self.scale == 0 or self.clients not in (None, "anonymous"):
            return ()
        return (Release(noise_scale=self.scale, parameters=parameters, own_devices=self.clients is None),)
