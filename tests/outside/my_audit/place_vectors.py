"""A recommender without people: each place has a vector, and a score that is its sum."""

import torch
from torch import Tensor, nn

from datamodules.cohort import Cohort
from defenses.base import Defense
from modules.engine.fast.buffer_pool import BufferPool
from modules.engine.local_hyperparameters import LocalTraining
from modules.engine.tasks import POSITION, Parameters
from modules.federated import FederatedModule
from modules.server import ServerOptimizer
from protocol.view import ITEM_EMBEDDING


class PlaceTask:
    """Logistic loss of a place's score."""

    batched_by_hand = False
    random = False

    def client_loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """Mean over a client's places."""
        table = parameters[ITEM_EMBEDDING]
        scores = (table[examples[POSITION]] if POSITION in examples else table).sum(1)
        losses = nn.functional.binary_cross_entropy_with_logits(scores, examples["label"], reduction="none")
        return (losses * mask).sum() / mask.sum().clamp(min=1)

    def client_losses(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """Of stacked clients."""
        losses: Tensor = torch.vmap(self.client_loss)(parameters, examples, mask)
        return losses

    def client_gradients(
        self, parameters: Parameters, examples: Parameters, mask: Tensor, scratch: BufferPool
    ) -> tuple[Tensor, Parameters] | None:
        """Left to autograd."""
        return None


class PlaceVectors(FederatedModule):
    """Trains `PlaceTask`.

    Args:
        num_items: places, None for as many as the data have.
        dim: length of a place's vector.
        local: how clients train.
        defenses: what clients do to protect themselves.
        seed: seed of every draw.
    """

    def __init__(
        self,
        *,
        num_items: int | None = None,
        dim: int = 4,
        local: LocalTraining = LocalTraining(learning_rate=0.5),  # noqa: B008 - frozen
        defenses: list[Defense] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(local=local, server=ServerOptimizer(), defenses=defenses or [], weighting="uniform", seed=seed)
        self.dim = dim
        self.build_with(num_items=num_items)

    def build(self, num_items: int) -> None:
        """All vectors begin at zero."""
        self.item_embedding = nn.Embedding(num_items, self.dim)
        nn.init.zeros_(self.item_embedding.weight)

    @property
    def task(self) -> PlaceTask:
        """The loss."""
        return PlaceTask()

    @property
    def row_parameters(self) -> tuple[str, ...]:
        """A client trains the vectors of the places that it was served."""
        return (ITEM_EMBEDDING,)

    def truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """Which places were visited."""
        return {"labels": cohort.examples["label"]}
