"""A recommender without people: each place has a vector, and its score is the sum of the vector."""

from typing import Unpack

import torch
from torch import Tensor, nn

from fedleak.client.algorithm import DescentAlgorithm
from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.engine.task import POSITION
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.training.federated import FederatedModule, Federation


class PlaceAlgorithm(DescentAlgorithm):
    """Logistic loss of a place's score."""

    def loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """Mean over a client's places."""
        table = parameters[ITEM_EMBEDDING]
        scores = (table[examples[POSITION]] if POSITION in examples else table).sum(1)
        losses = nn.functional.binary_cross_entropy_with_logits(scores, examples["label"], reduction="none")
        return (losses * mask).sum() / mask.sum().clamp(min=1)


class PlaceVectors(FederatedModule):
    """Trains `PlaceAlgorithm`.

    Args:
        num_items: places, None for as many as the data have.
        dim: length of a place's vector.
        local: how clients train.
        federation: see `FederatedModule`.
    """

    def __init__(
        self,
        *,
        num_items: int | None = None,
        dim: int = 4,
        local: LocalTraining = LocalTraining(learning_rate=0.5),  # noqa: B008 - frozen
        **federation: Unpack[Federation],
    ) -> None:
        super().__init__(local=local, **federation)
        self.dim = dim
        self.build_with(num_items=num_items)

    def build(self, num_items: int) -> None:
        """All vectors begin at zero."""
        self.item_embedding = nn.Embedding(num_items, self.dim)
        torch.nn.init.zeros_(self.item_embedding.weight)

    @property
    def algorithm(self) -> PlaceAlgorithm:
        """What a client runs."""
        return PlaceAlgorithm(local=self.local)

    @property
    def row_parameters(self) -> tuple[str, ...]:
        """A client trains the vectors of the places that it was served."""
        return (ITEM_EMBEDDING,)

    def truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """Which places were visited."""
        return {"labels": cohort.examples["label"]}
