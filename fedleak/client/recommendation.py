"""Clients of a recommender, with a private user vector each and rows of a public item table."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedleak.client.algorithm import DescentAlgorithm, Model
from fedleak.client.cohort import Cohort
from fedleak.client.engine.differentiable_training import by_autograd, full_batches, train_differentiably
from fedleak.client.engine.fast.gradients import Parameters, SecondDerivatives
from fedleak.client.engine.task import StackedTask
from fedleak.client.engine.training_job import own_elements
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.defenses.base import Defense

USER_EMBEDDING = "user_embedding"
"""Name of the private user vector."""


@dataclass(frozen=True, kw_only=True)
class RecommenderAlgorithm(DescentAlgorithm, StackedTask):
    """Clients of a recommender, with a private user vector each."""

    if TYPE_CHECKING:  # a field of some subclasses, a property of others

        @property
        def user_dim(self) -> int:
            """Length of a user vector."""

    def simulate(
        self, model: Model, items: Tensor, labels: Tensor, users: Tensor, *, differentiable: bool = False
    ) -> dict[str, Tensor]:
        """Trains simulated clients.

        Args:
            model: the global model.
            items: item numbers ``(B, R)``, padded with -1.
            labels: interactions in [0, 1], ``(B, R)``; soft labels are allowed.
            users: private user vectors before the round ``(B, user_dim)``.
            differentiable: keep the graph, so that gradients reach `labels` and `users`.

        Returns:
            Deltas by parameter name: ``(B, R, d)`` for the item table (zero where padded), ``(B, *shape)`` for others.
        """
        if differentiable:
            return self._simulate_differentiably(model, items, labels, users)
        cohort = Cohort(0, torch.arange(items.shape[0]), {"label": labels}, items >= 0, {ITEM_EMBEDDING: items})
        return self.train(model, cohort, private={USER_EMBEDDING: users}).deltas

    def _simulate_differentiably(
        self, model: Mapping[str, Tensor], items: Tensor, labels: Tensor, users: Tensor
    ) -> dict[str, Tensor]:
        mask = items >= 0
        clients = items.shape[0]
        received: Parameters = {}
        for name, value in model.items():
            if name == ITEM_EMBEDDING:
                received[name] = value[items.clamp(min=0)]
            else:
                received[name] = value.expand(clients, *value.shape)
        elements = own_elements(model, {ITEM_EMBEDDING: items}, clients)
        penalising = [defense for defense in self.training_defenses if type(defense).penalty is not Defense.penalty]
        # Hand-written second derivatives do not know the penalties of defences.
        fast = self.fast() if self.local.fast and not penalising else None

        def loss(parameters: Parameters, examples: Parameters) -> Tensor:
            total = self.stacked_loss(parameters, examples, mask).sum()
            public = {name: parameters[name] for name in received}
            for defense in penalising:
                penalty = defense.penalty(public, received, elements)
                total = total if penalty is None else total + penalty.sum()
            return total

        def step(parameters: Parameters, examples: Parameters) -> tuple[Parameters, SecondDerivatives]:
            written = None
            if fast is not None:
                written = fast.differentiable(parameters, examples, mask)
            if written is None:
                return by_autograd(loss)(parameters, examples)
            return written

        # Full-batch steps of all clients at once, through which gradients reach labels and user vectors.
        start = {**received, USER_EMBEDDING: users}
        trained = train_differentiably(start, {"label": labels}, full_batches(step, self.local), self.local)
        return {name: trained[name] - value for name, value in received.items()}
