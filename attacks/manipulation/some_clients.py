"""Manipulating a few clients of each round, so that the model hardly suffers (RAIFLE, section VIII.A)."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from attacks.manipulation.base import Manipulation


class SomeClients(Manipulation):
    """Sends the first clients of every cohort what `inner` makes, and all others the real features.

    Args:
        inner: what the manipulated clients get.
        clients: how many of each cohort.
    """

    name = "some-clients"

    def __init__(self, inner: Manipulation, *, clients: int) -> None:
        if clients < 0:
            raise ValueError(f"expected clients of 0 or more, got {clients}")
        self.inner = inner
        self.clients = clients

    def features(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generator: torch.Generator
    ) -> Tensor:
        """What a manipulated client gets."""
        return self.inner.features(model, features, mask, generator=generator)

    def of_cohort(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generators: Sequence[torch.Generator]
    ) -> Tensor:
        """See `Manipulation.of_cohort`."""
        few = slice(0, self.clients)
        sent = self.inner.of_cohort(model, features[few], mask[few], generators=generators[few])
        return torch.cat([sent, features[self.clients :]])
