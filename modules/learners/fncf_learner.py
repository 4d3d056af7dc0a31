"""The public algorithm of federated neural collaborative filtering: what the server can simulate, knowing no client."""

from collections.abc import Mapping

import torch
from torch import Tensor

from datamodules.cohort import Cohort
from defenses.base import Defense
from modules.engine.differentiable_training import train_differentiably
from modules.engine.local_hyperparameters import LocalTraining
from modules.engine.local_training import train_clients
from modules.engine.tasks import Parameters
from modules.engine.training_job import own_elements
from modules.learners.fncf_task import USER_EMBEDDING, InteractionTask
from modules.nets.ncf import layer_names
from protocol.view import ITEM_EMBEDDING


class FNCFLearner:
    """Simulates clients of FNCF; see `protocol.simulators.RecommenderSimulator`.

    Args:
        user_dim: length of the private user vector.
        local: how a client trains.
        defenses: defences whose penalty is part of the local loss.
    """

    def __init__(self, *, user_dim: int, local: LocalTraining, defenses: tuple[Defense, ...] = ()) -> None:
        self.user_dim = user_dim
        self.local = local
        self.defenses = defenses
        self.task = InteractionTask()

    @property
    def learning_rate(self) -> float:
        """Local learning rate."""
        return self.local.learning_rate

    def network_shapes(self, held: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Shape of every public parameter: items and hidden widths as they are held, one score at the end."""
        items, dim = held[ITEM_EMBEDDING]
        shapes: dict[str, tuple[int, ...]] = {ITEM_EMBEDDING: (items, dim)}
        width = self.user_dim + dim
        layers = layer_names(held)
        for place, name in enumerate(layers):
            out = held[f"{name}.weight"][0] if place < len(layers) - 1 else 1
            shapes |= {f"{name}.weight": (out, width), f"{name}.bias": (out,)}
            width = out
        return shapes

    def simulate(
        self,
        model: Mapping[str, Tensor],
        items: Tensor,
        labels: Tensor,
        users: Tensor,
        *,
        differentiable: bool = False,
    ) -> dict[str, Tensor]:
        if differentiable:
            return self._simulate_differentiably(model, items, labels, users)
        clients = torch.arange(items.shape[0])
        cohort = Cohort(0, clients, {"label": labels}, items >= 0, {ITEM_EMBEDDING: items})
        result = train_clients(
            self.task, model, {USER_EMBEDDING: users}, cohort, self.local, seed=0, defenses=self.defenses
        )
        return result.deltas

    def _simulate_differentiably(
        self, model: Mapping[str, Tensor], items: Tensor, labels: Tensor, users: Tensor
    ) -> dict[str, Tensor]:
        mask = items >= 0
        clients = items.shape[0]
        received: Parameters = {
            name: value[items.clamp(min=0)] if name == ITEM_EMBEDDING else value.expand(clients, *value.shape)
            for name, value in model.items()
        }
        elements = own_elements(model, {ITEM_EMBEDDING: items}, clients)

        def loss(parameters: Parameters) -> Tensor:
            total = self.task.client_losses(parameters, {"label": labels}, mask).sum()
            public = {name: parameters[name] for name in received}
            for defense in self.defenses:
                penalty = defense.penalty(public, received, elements)
                total = total if penalty is None else total + penalty.sum()
            return total

        trained = train_differentiably({**received, USER_EMBEDDING: users}, loss, self.local)
        return {name: trained[name] - value for name, value in received.items()}
