"""The public algorithm of federated matrix factorisation: what the server can simulate, knowing no client."""

from collections.abc import Mapping

import torch
from torch import Tensor

from datamodules.cohort import Cohort
from modules.engine.differentiable_training import train_differentiably
from modules.engine.local_hyperparameters import LocalTraining
from modules.engine.local_training import train_clients
from modules.engine.tasks import Parameters
from modules.learners.fncf_task import USER_EMBEDDING
from modules.learners.matrix_factorization_task import MatrixFactorizationTask
from protocol.margin_losses import LossName
from protocol.view import ITEM_EMBEDDING


class MFLearner:
    """Simulates clients of `FederatedMF`: a `RecommenderSimulator` and a `MarginSimulator`.

    Args:
        dim: length of user and item vectors.
        loss: loss of the margin.
        clip: L2 norm to which the gradient of each item's vector is clipped, None for no clipping.
        local: how a client trains.
    """

    def __init__(self, *, dim: int, loss: LossName, local: LocalTraining, clip: float | None = None) -> None:
        self.user_dim = dim
        self.local = local
        self.task = MatrixFactorizationTask(loss=loss, clip=clip)

    @property
    def learning_rate(self) -> float:
        """Local learning rate."""
        return self.local.learning_rate

    @property
    def slope_at_zero(self) -> float:
        """Derivative of the loss at margin 0."""
        return self.task.loss.slope_at_zero

    def network_shapes(self, held: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Shape of the item table, of as many items as it has."""
        return {ITEM_EMBEDDING: (held[ITEM_EMBEDDING][0], self.user_dim)}

    def simulate(
        self,
        model: Mapping[str, Tensor],
        items: Tensor,
        labels: Tensor,
        users: Tensor,
        *,
        differentiable: bool = False,
    ) -> dict[str, Tensor]:
        mask = items >= 0
        if differentiable:
            received: Parameters = {ITEM_EMBEDDING: model[ITEM_EMBEDDING][items.clamp(min=0)]}
            trained = train_differentiably(
                {**received, USER_EMBEDDING: users},
                lambda current: self.task.client_losses(current, {"label": labels}, mask).sum(),
                self.local,
            )
            return {name: trained[name] - value for name, value in received.items()}
        cohort = Cohort(0, torch.arange(items.shape[0]), {"label": labels}, mask, {ITEM_EMBEDDING: items})
        public = {ITEM_EMBEDDING: model[ITEM_EMBEDDING]}
        return train_clients(self.task, public, {USER_EMBEDDING: users}, cohort, self.local, seed=0).deltas
