"""Federated neural collaborative filtering (RAIFLE, section V.A; Perifanis and Efraimidis 2022)."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from datamodules.cohort import Cohort
from defenses.base import Defense
from defenses.update_l1 import UpdateL1
from modules.engine.local_hyperparameters import LocalTraining
from modules.engine.tasks import Parameters
from modules.federated import FederatedModule, Weighting
from modules.learners.fncf_task import USER_EMBEDDING, InteractionTask, initial_users
from modules.learners.recommender import HeldOutRanking
from modules.nets.ncf import ncf_logits, ncf_mlp
from modules.server import ServerOptimizer
from protocol.seeding import PERSISTENT, generator_for
from protocol.view import ITEM_EMBEDDING
from ranges import PositiveInt

PAPER_LOCAL = LocalTraining(optimizer="adam", learning_rate=0.001, epochs=20, eps_root=1e-8)


class FNCF(HeldOutRanking, FederatedModule):
    """A recommender whose item embeddings and network are public, and whose user vectors never leave the clients.

    Args:
        num_items: items in the catalogue, None for those of the data.
        num_clients: users, None for those of the data.
        user_dim: length of the private user vector.
        item_dim: length of an item embedding.
        hidden: widths of the hidden layers.
        local: how clients train (the paper: 20 full-batch epochs of Adam at 0.001; its code: eps_root 1e-8).
        server: what the server does with the average.
        defenses: what clients do to protect themselves.
        weighting: whether a client counts by its examples or as one.
        top_k: length of the recommended list for HR and NDCG.
        seed: seed of every draw.
    """

    def __init__(
        self,
        *,
        num_items: int | None = None,
        num_clients: int | None = None,
        user_dim: PositiveInt = 64,
        item_dim: PositiveInt = 64,
        hidden: tuple[PositiveInt, ...] = (128, 64, 32),
        local: LocalTraining = PAPER_LOCAL,
        server: ServerOptimizer = ServerOptimizer(),  # noqa: B008 - frozen
        defenses: Sequence[Defense] = (),
        weighting: Weighting = "examples",
        top_k: PositiveInt = 10,
        seed: int = 0,
    ) -> None:
        super().__init__(local=local, server=server, defenses=defenses, weighting=weighting, seed=seed)
        self._task = InteractionTask()
        self.user_dim, self.item_dim, self.hidden = user_dim, item_dim, hidden
        self.rank_at(top_k)
        self.build_with(num_items=num_items, num_clients=num_clients)

    def build(self, num_items: int, num_clients: int) -> None:
        """The item table, the network and the users' vectors."""
        self.item_embedding = nn.Embedding(num_items, self.item_dim)
        self.mlp = ncf_mlp(self.user_dim, self.item_dim, self.hidden)
        _initialise(self.item_embedding, self.mlp, generator_for(self.seed, "global-model", PERSISTENT))
        users = generator_for(self.seed, "users", PERSISTENT)
        self.private = {USER_EMBEDDING: initial_users(num_clients, self.user_dim, users)}

    @property
    def task(self) -> InteractionTask:
        """Mean binary cross-entropy over a client's items."""
        return self._task

    @property
    def row_parameters(self) -> tuple[str, ...]:
        """The item table: a client trains the rows of the items it was served."""
        return (ITEM_EMBEDDING,)

    def truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """What each client interacted with."""
        return {"labels": cohort.examples["label"]}

    def learner_description(self) -> dict[str, Any]:
        penalties = [d for d in self.defenses if isinstance(d, UpdateL1)]
        update_l1 = None
        if penalties:
            penalty = penalties[0]
            update_l1 = {
                "strength": penalty.strength,
                "reduction": penalty.reduction,
                "parameters": list(penalty.parameters),
            }
        arguments = {"user_dim": self.user_dim, "local": dataclasses.asdict(self.local), "update_l1": update_l1}
        return {"name": "fncf", "arguments": arguments}

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Scores ``(B, K)`` of items ``(B, K)`` for private vectors ``(B, user_dim)``."""
        batch = users.shape[0]
        public: Parameters = {n: p.expand(batch, *p.shape) for n, p in self.named_parameters() if n != ITEM_EMBEDDING}
        return ncf_logits(public, users, self.item_embedding(items))


@torch.no_grad()
def _initialise(table: nn.Embedding, mlp: nn.Sequential, generator: torch.Generator) -> None:
    """Item vectors from N(0, 1), layers as torch's default, all from our generator."""
    table.weight.normal_(generator=generator)
    for layer in mlp:
        if isinstance(layer, nn.Linear):
            bound = layer.in_features**-0.5
            layer.weight.uniform_(-bound, bound, generator=generator)
            layer.bias.uniform_(-bound, bound, generator=generator)
