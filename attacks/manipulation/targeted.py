"""Singling out clients in a secure aggregate: features that only the targets have (RAIFLE, section VII.B)."""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from attacks.base import ViewError
from attacks.manipulation.base import Manipulation
from attacks.manipulation.codebook import OUTPUT

Others = Literal["silenced", "honest"]


class Targeted(Manipulation):
    """Gives each target of an aggregate a block of features of its own.

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

    def __init__(
        self,
        inner: Manipulation,
        *,
        participants: int,
        targets: int = 1,
        share: float = 1.0,
        others: Others = "silenced",
    ) -> None:
        if not 1 <= targets <= participants or not 0 < share <= 1:
            raise ValueError(
                f"expected 1 to participants targets and a share in (0, 1], got {targets} of {participants} and {share}"
            )
        self.inner = inner
        self.participants, self.targets = participants, targets
        self.share = share
        self.others: Others = others

    def features(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generator: torch.Generator
    ) -> Tensor:
        """What every client of ``features`` would get as the first target."""
        block = self._blocks(features.shape[-1])[0]
        return self._in_block(model, features, mask, block, generator)

    def of_cohort(
        self, model: Mapping[str, Tensor], features: Tensor, mask: Tensor, *, generators: Sequence[torch.Generator]
    ) -> Tensor:
        """See `Manipulation.of_cohort`."""
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
