"""Manipulation of some clients only: a few of each round, or the targets of a secure aggregate."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal

import torch
from torch import Tensor

from attacks.manipulation.base import Manipulation
from protocol.rankers import OUTPUT
from protocol.view import ViewError
from ranges import NonNegativeInt

Others = Literal["silenced", "honest"]


@dataclass(frozen=True)
class SomeClients(Manipulation):
    """A manipulation of the first clients of every cohort, so that the model hardly suffers (RAIFLE, section VIII.A).

    Args:
        inner: what the manipulated clients get.
        clients: how many of each cohort.
    """

    name = "some-clients"

    inner: Manipulation
    _: KW_ONLY
    clients: NonNegativeInt

    def features(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generator: torch.Generator
    ) -> Tensor:
        """What a manipulated client gets."""
        return self.inner.features(model, features, mask, generator=generator)

    def of_cohort(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generators: Sequence[torch.Generator]
    ) -> Tensor:
        few = slice(0, self.clients)
        sent = self.inner.of_cohort(model, features[few], mask[few], generators=generators[few])
        return torch.cat([sent, features[self.clients :]])


@dataclass(frozen=True)
class Targeted(Manipulation):
    """A block of features for each target of an aggregate, that no other client has (RAIFLE, section VII.B).

    What a client does not have of a feature, it cannot say in the weights that read it: the aggregate's sum holds the
    target's update in its block, untouched by the others where they are silenced there.

    Args:
        inner: what a target gets in its block.
        participants: clients in an aggregate: consecutive ones of a cohort, the targets first.
        targets: targets of each aggregate.
        share: fraction of the features that the blocks of all targets take together.
        others: ``silenced``: the other clients get zero in the blocks, and the real features elsewhere; ``honest``:
            they get the real features everywhere, and their updates lie over the targets'.
    """

    name = "targeted"

    inner: Manipulation
    _: KW_ONLY
    participants: int
    targets: int = 1
    share: float = 1.0
    others: Others = "silenced"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.targets <= self.participants or not 0 < self.share <= 1:
            raise ValueError(
                f"expected 1 to {self.participants} targets and a share in (0, 1], got {self.targets} and {self.share}"
            )

    def features(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generator: torch.Generator
    ) -> Tensor:
        """What every client of ``features`` would get as the first target."""
        block = self._blocks(features.shape[-1])[0]
        return self._in_block(model, features, mask, block, generator)

    def of_cohort(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generators: Sequence[torch.Generator]
    ) -> Tensor:
        blocks = self._blocks(features.shape[-1])
        sent = features.clone()
        if self.others == "silenced":
            sent[..., blocks[0].start : blocks[-1].stop] = 0
        for client, generator in enumerate(generators):
            place = client % self.participants
            if place < self.targets:
                own = slice(client, client + 1)
                sent[own] = self._in_block(model, features[own], mask[own], blocks[place], generator)
        return sent

    def _blocks(self, width: int) -> list[slice]:
        size = int(width * self.share) // self.targets
        if not size:
            raise ViewError(f"expected at most {int(width * self.share)} targets for {width} features and this share")
        return [slice(number * size, (number + 1) * size) for number in range(self.targets)]

    def _in_block(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, block: slice, generator: torch.Generator
    ) -> Tensor:
        reading = {name: value if name == OUTPUT else value[..., block] for name, value in model.items()}
        sent = torch.zeros_like(features)
        sent[..., block] = self.inner.features(reading, features[..., block], mask, generator=generator)
        return sent
