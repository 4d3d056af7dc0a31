"""Federated matrix factorisation: item vectors are public, user vectors never leave the clients (London 2020)."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from datamodules.cohort import Cohort
from defenses.base import Defense
from modules.federated import Weighting
from modules.held_out_ranking import HeldOutRanking
from modules.local_hyperparameters import LocalTraining
from modules.margin_losses import LossName
from modules.preferences import PreferenceTask
from modules.recommendation import USER_EMBEDDING, initial_users
from modules.server import ServerOptimizer
from modules.tasks import Parameters
from protocol.errors import InputError
from protocol.seeding import PERSISTENT, generator_for
from protocol.view import ITEM_EMBEDDING
from ranges import PositiveInt

PROTOCOL_1 = LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=10, updates=10)
"""The paper's clients, who draw every batch anew; it gives no numbers."""


class FederatedMF(HeldOutRanking):
    """A recommender ``sgn(u.v)``; the clients train by Protocol 1 (`local.updates`) or Protocol 3 (`local.epochs`).

    The paper's server adds the clients' messages: ``weighting`` uniform and a server learning rate of as many clients
    as there are in a round.

    Args:
        num_items: items in the catalogue.
        num_clients: users.
        dim: length of user and item vectors.
        initial_scale: standard deviation of the initial vectors' numbers.
        loss: loss of the margin.
        clip: L2 norm to which the gradient of each item's vector is clipped, None for no clipping.
        local: how clients train.
        server: what the server does with the average.
        defenses: what clients do to protect themselves; Equation 3 is `defenses.row_noise.RowNoise`.
        weighting: whether a client counts by its examples or as one.
        top_k: length of the recommended list for HR and NDCG.
        seed: seed of every draw.
    """

    precisions = ("32-true", "bf16-mixed")
    """In mixed precision its updates stay float32, and differ from those in full by less than one part in 1,000."""

    def __init__(
        self,
        *,
        num_items: int,
        num_clients: int,
        dim: PositiveInt = 16,
        initial_scale: float = 0.1,
        loss: LossName = "log",
        clip: float | None = None,
        local: LocalTraining = PROTOCOL_1,
        server: ServerOptimizer = ServerOptimizer(),  # noqa: B008 - frozen
        defenses: Sequence[Defense] = (),
        weighting: Weighting = "uniform",
        top_k: PositiveInt = 10,
        seed: int = 0,
    ) -> None:
        super().__init__(local=local, server=server, defenses=defenses, weighting=weighting, seed=seed)
        _check(local, initial_scale, clip)
        self._task = PreferenceTask(loss=loss, clip=clip)
        self.loss, self.clip, self.dim = loss, clip, dim
        self.item_embedding = nn.Embedding(num_items, dim)
        with torch.no_grad():
            self.item_embedding.weight.normal_(generator=generator_for(seed, "global-model", PERSISTENT))
            self.item_embedding.weight.mul_(initial_scale)
        users = generator_for(seed, "users", PERSISTENT)
        self.private = {USER_EMBEDDING: initial_scale * initial_users(num_clients, dim, users)}
        self.rank_at(top_k)

    @property
    def task(self) -> PreferenceTask:
        """The loss of the margin, with the steps of Protocol 1."""
        return self._task

    @property
    def row_parameters(self) -> tuple[str, ...]:
        """The item table: a client trains the rows of the items for which it has labels."""
        return (ITEM_EMBEDDING,)

    def interact(self, cohort: Cohort, model: Parameters) -> Cohort:
        """Refuses a client that cannot train.

        Raises:
            InputError: a client has no labels, or fewer than a batch.
        """
        least = self.local.batch_size or 1
        short = torch.nonzero(cohort.counts < least).flatten().tolist()
        if short:
            raise InputError(
                expected=f"clients with at least {least} labels, one batch",
                found=f"client {int(cohort.clients[short[0]])} with {int(cohort.counts[short[0]])}"
                f" ({len(short)} such clients)",
                way_out="Set a smaller local.batch_size, or data.fewest_labels to leave such clients out.",
            )
        return cohort

    def truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """What each client likes."""
        return {"labels": cohort.examples["label"]}

    def client_truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """The private vectors after the round."""
        return {"user_vector": self.private[USER_EMBEDDING][cohort.clients.cpu()]}

    def learner_description(self) -> dict[str, Any]:
        """See `FederatedModule.learner_description`."""
        local = dataclasses.asdict(self.local)
        return {"name": "mf", "arguments": {"dim": self.dim, "loss": self.loss, "clip": self.clip, "local": local}}

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Scores ``(B, K)`` of items ``(B, K)`` for private vectors ``(B, dim)``."""
        return torch.einsum("bkd,bd->bk", self.item_embedding(items), users)


def _check(local: LocalTraining, initial_scale: float, clip: float | None) -> None:
    for name, value in (("initial_scale", initial_scale), ("clip", 1.0 if clip is None else clip)):
        if not value > 0:
            raise InputError(expected=f"{name} > 0", found=f"{value:g}", way_out=f"Set model.{name} above zero.")
    if local.optimizer != "sgd" or local.momentum:
        raise InputError(
            expected="clients with plain SGD, as in Protocols 1 and 3",
            found=f"{local.optimizer}, momentum {local.momentum:g}",
            way_out="Set local.optimizer to sgd without momentum.",
        )
