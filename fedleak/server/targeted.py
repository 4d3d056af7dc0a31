"""A manipulation of the targets of a secure aggregate."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal

import torch
from torch import Generator, Tensor

from fedleak.core.errors import ViewError
from fedleak.core.rankers import OUTPUT
from fedleak.defenses.manipulation_checks import ConstantColumns
from fedleak.server.deviation import Notice
from fedleak.server.feature_manipulation import FeatureManipulation, Model, check_knows_lists

Others = Literal["silenced", "honest"]


@dataclass(frozen=True)
class Targeted(FeatureManipulation):
    """Fingerprinting under secure aggregation: a block of features for each target, unused by all other clients.

    A client whose features are zero in a block contributes nothing to the weights that read this block. If all other
    clients are silenced there, the sum over the aggregate equals the target's update in its block.

    Args:
        inner: the manipulation in a target's block.
        participants: clients in an aggregate, consecutive in the cohort, the targets first.
        targets: number of targets in each aggregate.
        share: fraction of the features in all blocks together.
        others: ``silenced``: other clients get zero in the blocks and real features elsewhere; ``honest``: they get
            real features everywhere, and their updates add to the targets'.

    References:
        [Pham25], section VII.B.
    """

    name = "targeted"
    does = "gives each target of a secure aggregate a block of features that no other client has"
    noticed = (
        Notice("client", "columns that are zero in all lists, for targets and silenced clients", (ConstantColumns,)),
    )
    references = ("Pham25, section VII.B",)

    inner: FeatureManipulation
    _: KW_ONLY
    participants: int
    targets: int = 1
    share: float = 1.0
    others: Others = "silenced"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_knows_lists(self.inner)
        if not 1 <= self.targets <= self.participants or not 0 < self.share <= 1:
            raise ValueError(
                f"expected 1 to {self.participants} targets and a share in (0, 1], got {self.targets} and {self.share}"
            )

    def features(self, model: Model, features: Tensor, mask: Tensor, *, generator: Generator) -> Tensor:
        """The features of every client if it were the first target."""
        return self._in_block(model, features, mask, self._blocks(features.shape[-1])[0], generator)

    def of_cohort(self, models: Model, features: Tensor, mask: Tensor, *, generators: Sequence[Generator]) -> Tensor:
        blocks = self._blocks(features.shape[-1])
        sent = features.clone()
        if self.others == "silenced":
            sent[..., blocks[0].start : blocks[-1].stop] = 0
        for client, generator in enumerate(generators):
            # The targets are the first clients of each aggregate; each has the block of its number.
            number = client % self.participants
            if number < self.targets:
                row = slice(client, client + 1)
                model = {name: parameter[client] for name, parameter in models.items()}
                sent[row] = self._in_block(model, features[row], mask[row], blocks[number], generator)
        return sent

    def _blocks(self, width: int) -> list[slice]:
        size = int(width * self.share) // self.targets
        if not size:
            raise ViewError(f"expected at most {int(width * self.share)} targets for {width} features and this share")
        return [slice(number * size, (number + 1) * size) for number in range(self.targets)]

    def _in_block(self, model: Model, features: Tensor, mask: Tensor, block: slice, generator: Generator) -> Tensor:
        # The part of the ranker that reads the block: all weights but those of the output have a column per feature.
        block_model = {}
        for name, parameter in model.items():
            block_model[name] = parameter if name == OUTPUT else parameter[..., block]
        sent = torch.zeros_like(features)
        sent[..., block] = self.inner.features(block_model, features[..., block], mask, generator=generator)
        return sent
