"""Federated matrix factorisation with public item vectors and private user vectors.

References:
    [London20], Protocols 1 and 3 and Equations 1 to 3.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from fedleak.client.cohort import Cohort
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.margin_losses import LossName
from fedleak.client.matrix_factorization import MFAlgorithm
from fedleak.client.recommendation import USER_EMBEDDING
from fedleak.core.errors import require
from fedleak.core.ranges import PositiveInt
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.core.view import ITEM_EMBEDDING, LEANING
from fedleak.modules.learners.probed_recommender import ProbedRecommender
from fedleak.server.probing import Probing
from fedleak.training.federated import Federation, Unpack

PROTOCOL_1 = LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=10, updates=10)
"""Protocol 1, which draws every batch anew; the paper gives no values."""


class FederatedMF(ProbedRecommender):
    """Federated matrix factorisation by Protocol 1 (`local.updates`) or Protocol 3 (`local.epochs`).

    The paper's server adds the clients' messages: use uniform ``weighting`` and a server learning rate equal to the
    number of clients in a round.

    Args:
        num_items: items in the catalogue, None to take the number from the data.
        num_clients: users, None to take the number from the data.
        dim: length of user and item vectors.
        initial_scale: standard deviation of the initial vectors' entries.
        loss: loss of the margin.
        clip: L2 norm to which the gradient of each item's vector is clipped, None for no clipping.
        local: how clients train.
        top_k: length of the recommended list for HR and NDCG.
        probing: Protocol 2 after the honest rounds, on the clients that the data draw
            (`fedleak.server.repeated_selection.RepeatedSelection`); None for an honest server.
        leaning: ``known`` if the server knows whether each client likes more items than it dislikes, ``negative`` if it
            assumes that all dislike more than they like.
        federation: arguments of `FederatedModule`; Equation 3 is the defence `RowNoise`.
    """

    algorithm: MFAlgorithm
    rows_are_public = False
    """Which items a client labelled is its own; Equation 3 shows it all the same, noise on all rows hides it."""
    weighs_by = "uniform"
    precisions = ("32-true", "bf16-mixed")
    """In mixed precision, updates stay float32 and differ from those in full precision by less than 0.1 percent."""

    def __init__(
        self,
        *,
        num_items: int | None = None,
        num_clients: int | None = None,
        dim: PositiveInt = 16,
        initial_scale: float = 0.1,
        loss: LossName = "log",
        clip: float | None = None,
        local: LocalTraining = PROTOCOL_1,
        top_k: PositiveInt = 10,
        probing: Probing | None = None,
        leaning: Literal["known", "negative"] = "negative",
        **federation: Unpack[Federation],
    ) -> None:
        super().__init__(local=local, **federation)
        for name, value in (("initial_scale", initial_scale), ("clip", 1.0 if clip is None else clip)):
            require(value > 0, f"{name} > 0", f"{value:g}", f"Set model.{name} above zero.")
        require(
            local.optimizer == "sgd" and not local.momentum,
            "clients with plain SGD, as in Protocols 1 and 3",
            f"{local.optimizer}, momentum {local.momentum:g}",
            "Set local.optimizer to sgd without momentum.",
        )
        self.algorithm = MFAlgorithm(dim=dim, margin_loss=loss, clip=clip, local=local, update_l1=self.update_l1)
        self.loss = loss
        self.clip = clip
        self.dim = dim
        self.initial_scale = initial_scale
        self.leaning = leaning
        self.probe_with(probing)
        self.rank_at(top_k)
        self.build_with(num_items=num_items, num_clients=num_clients)

    def build(self, num_items: int, num_clients: int) -> None:
        self.item_embedding = nn.Embedding(num_items, self.dim)
        with torch.no_grad():
            self.item_embedding.weight.normal_(generator=generator_for(self.seed, "global-model", PERSISTENT))
            self.item_embedding.weight.mul_(self.initial_scale)
        users = generator_for(self.seed, "users", PERSISTENT)
        # Both vectors have entries from N(0, initial_scale^2).
        self.private = {USER_EMBEDDING: self.initial_scale * torch.randn(num_clients, self.dim, generator=users)}

    @property
    def row_parameters(self) -> tuple[str, ...]:
        return (ITEM_EMBEDDING,)

    def truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """Labels of each client's items, if the server sees which they are."""
        if self.hidden_rows:
            return {}
        return {"labels": cohort.examples["label"][:, : cohort.rows[ITEM_EMBEDDING].shape[1]]}

    def client_truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """User vectors; if every row has noise, also the labels of all items, -1 where there is none."""
        truth = super().client_truth(cohort)
        if self.hidden_rows:
            items = cohort.rows[ITEM_EMBEDDING]
            labels = cohort.examples["label"]
            all_labels = labels.new_full((len(cohort), self.item_embedding.num_embeddings), -1.0)
            client, slot = (items >= 0).nonzero(as_tuple=True)
            all_labels[client, items[client, slot]] = labels[client, slot]
            truth["labels"] = all_labels
        return truth

    def priors(self, cohort: Cohort) -> dict[str, Tensor]:
        if self.leaning == "negative":
            return {}
        # A label of 1 is a like: above one half, a client likes more items than it dislikes.
        rates = (cohort.examples["label"].double() * cohort.mask).sum(1) / cohort.counts
        return {LEANING: torch.where(rates > 0.5, 1.0, -1.0)}

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Scores ``(B, K)`` of items ``(B, K)`` for private vectors ``(B, dim)``."""
        return torch.einsum("bkd,bd->bk", self.item_embedding(items), users)
