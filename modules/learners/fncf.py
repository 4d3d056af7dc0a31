"""Federated neural collaborative filtering.

References:
    [Perifanis22].
    [Pham25], section V.A.
"""

import torch
from torch import Tensor, nn

from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.fncf import FNCFAlgorithm
from fedleak.client.nets.classifiers import draw_layers
from fedleak.client.nets.ncf import ncf_logits, ncf_mlp
from fedleak.client.recommendation import USER_EMBEDDING
from fedleak.core.ranges import PositiveInt
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.modules.learners.recommender import HeldOutRanking
from fedleak.training.federated import Federation, Unpack

PAPER_LOCAL = LocalTraining(optimizer="adam", learning_rate=0.001, epochs=20, eps_root=1e-8)


class FNCF(HeldOutRanking):
    """Federated recommender with a public item table and network, and private user vectors.

    Args:
        num_items: items in the catalogue, None to take the number from the data.
        num_clients: users, None to take the number from the data.
        user_dim: length of the private user vector.
        item_dim: length of an item embedding.
        hidden: widths of the hidden layers.
        local: how clients train (the paper: 20 full-batch epochs of Adam at 0.001; its code: eps_root 1e-8).
        top_k: length of the recommended list for HR and NDCG.
        federation: see `FederatedModule`.
    """

    algorithm: FNCFAlgorithm

    def __init__(
        self,
        *,
        num_items: int | None = None,
        num_clients: int | None = None,
        user_dim: PositiveInt = 64,
        item_dim: PositiveInt = 64,
        hidden: tuple[PositiveInt, ...] = (128, 64, 32),
        local: LocalTraining = PAPER_LOCAL,
        top_k: PositiveInt = 10,
        **federation: Unpack[Federation],
    ) -> None:
        super().__init__(local=local, **federation)
        self.user_dim = user_dim
        self.item_dim = item_dim
        self.hidden = hidden
        self.algorithm = FNCFAlgorithm(user_dim=user_dim, local=local, update_l1=self.update_l1)
        self.rank_at(top_k)
        self.build_with(num_items=num_items, num_clients=num_clients)

    def build(self, num_items: int, num_clients: int) -> None:
        self.item_embedding = nn.Embedding(num_items, self.item_dim)
        self.mlp = ncf_mlp(self.user_dim, self.item_dim, self.hidden)
        generator = generator_for(self.seed, "global-model", PERSISTENT)
        with torch.no_grad():
            self.item_embedding.weight.normal_(generator=generator)  # torch's default for embeddings, N(0, 1)
        draw_layers(self.mlp, generator)
        users = generator_for(self.seed, "users", PERSISTENT)
        self.private = {USER_EMBEDDING: torch.randn(num_clients, self.user_dim, generator=users)}

    @property
    def row_parameters(self) -> tuple[str, ...]:
        return (ITEM_EMBEDDING,)

    def truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """Interactions of each client with the served items."""
        return {"labels": cohort.examples["label"]}

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Scores ``(B, K)`` of items ``(B, K)`` for private vectors ``(B, user_dim)``."""
        batch = users.shape[0]
        public: Parameters = {}
        for name, value in self.named_parameters():
            if name != ITEM_EMBEDDING:
                public[name] = value.expand(batch, *value.shape)
        return ncf_logits(public, users, self.item_embedding(items))
