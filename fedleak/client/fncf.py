"""Clients of federated neural collaborative filtering.

References:
    [Perifanis22].
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from fedleak.client.algorithm import Shapes
from fedleak.client.engine.fast.gradients import Gradients, Parameters
from fedleak.client.engine.fast.ncf_gradient import InteractionGradients
from fedleak.client.engine.task import POSITION
from fedleak.client.nets.ncf import layer_names, ncf_logits
from fedleak.client.recommendation import USER_EMBEDDING, RecommenderAlgorithm
from fedleak.core.ranges import PositiveInt
from fedleak.core.view import ITEM_EMBEDDING


@dataclass(frozen=True, kw_only=True)
class FNCFAlgorithm(RecommenderAlgorithm):
    """Clients that minimise the mean binary cross-entropy of their items; labels are in [0, 1].

    Attributes:
        user_dim: length of a user vector.
    """

    name: ClassVar[str] = "fncf"

    user_dim: PositiveInt

    def stacked_loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """Example k belongs to row k of the client's item table, except in a mini-batch, which holds `POSITION`."""
        items = parameters[ITEM_EMBEDDING]
        if POSITION in examples:
            index = examples[POSITION][..., None].expand(-1, -1, items.shape[2])
            items = items.gather(1, index)
        logits = ncf_logits(parameters, parameters[USER_EMBEDDING], items)
        losses = functional.binary_cross_entropy_with_logits(logits, examples["label"], reduction="none")
        return (losses * mask).sum(1) / mask.sum(1).clamp(min=1)

    def fast(self) -> Gradients:
        return InteractionGradients()

    def network_shapes(self, recorded: Shapes) -> dict[str, tuple[int, ...]]:
        items, dim = recorded[ITEM_EMBEDDING]
        shapes: dict[str, tuple[int, ...]] = {ITEM_EMBEDDING: (items, dim)}
        width = self.user_dim + dim
        layers = layer_names(recorded)
        for depth, name in enumerate(layers):
            # The width of a hidden layer is no field, so it is that of the recording; the last has one logit.
            out = recorded[f"{name}.weight"][0] if depth < len(layers) - 1 else 1
            shapes |= {f"{name}.weight": (out, width), f"{name}.bias": (out,)}
            width = out
        return shapes
