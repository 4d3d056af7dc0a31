"""Federated matrix factorisation: item vectors are public, user vectors never leave the clients (London 2020)."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from lightning.fabric.utilities.apply_func import move_data_to_device
from torch import Tensor, nn

from datamodules.cohort import Cohort
from defenses.base import Defense, Update
from defenses.refusal import RefuseProbes
from defenses.row_noise import RowNoise
from modules.engine.local_hyperparameters import LocalTraining
from modules.engine.tasks import Parameters
from modules.federated import Weighting
from modules.learners.fncf_task import USER_EMBEDDING, initial_users
from modules.learners.matrix_factorization_task import MatrixFactorizationTask
from modules.learners.recommender import HeldOutRanking
from modules.probing.campaign import Answered, Campaign, Probing
from modules.probing.clients import Answering
from modules.server import ServerOptimizer
from protocol.errors import InputError
from protocol.margin_losses import LossName
from protocol.seeding import PERSISTENT, generator_for
from protocol.view import ITEM_EMBEDDING, LEANING
from ranges import PositiveInt

PROTOCOL_1 = LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=10, updates=10)
"""The paper's clients, who draw every batch anew; it gives no numbers."""


class FederatedMF(HeldOutRanking):
    """A recommender ``sgn(u.v)``; the clients train by Protocol 1 (`local.updates`) or Protocol 3 (`local.epochs`).

    The paper's server adds the clients' messages: ``weighting`` uniform and a server learning rate of as many clients
    as there are in a round.

    Args:
        num_items: items in the catalogue, None for those of the data.
        num_clients: users, None for those of the data.
        dim: length of user and item vectors.
        initial_scale: standard deviation of the initial vectors' numbers.
        loss: loss of the margin.
        clip: L2 norm to which the gradient of each item's vector is clipped, None for no clipping.
        local: how clients train.
        server: what the server does with the average.
        defenses: what clients do to protect themselves; Equation 3 is `defenses.row_noise.RowNoise`.
        weighting: whether a client counts by its examples or as one.
        top_k: length of the recommended list for HR and NDCG.
        probing: what the server does after its honest rounds, which it then calls clients for that the data draw
            (`datamodules.recommendation.called.Called`); None for an honest server.
        leaning: ``known`` where the server knows which way each client leans, ``negative`` where it takes all of them
            to dislike more than they like.
        seed: seed of every draw.
    """

    precisions = ("32-true", "bf16-mixed")
    """In mixed precision its updates stay float32, and differ from those in full by less than one part in 1,000."""

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
        server: ServerOptimizer = ServerOptimizer(),  # noqa: B008 - frozen
        defenses: Sequence[Defense] = (),
        weighting: Weighting = "uniform",
        top_k: PositiveInt = 10,
        probing: Probing | None = None,
        leaning: Literal["known", "negative"] = "negative",
        seed: int = 0,
    ) -> None:
        super().__init__(local=local, server=server, defenses=defenses, weighting=weighting, seed=seed)
        _check(local, initial_scale, clip)
        self._task = MatrixFactorizationTask(loss=loss, clip=clip)
        self.loss, self.clip, self.dim, self.initial_scale = loss, clip, dim, initial_scale
        self.leaning = leaning
        self.probing = probing
        self._campaign = None if probing is None else Campaign(probing, self.answering(), seed=seed)
        self._answered: Answered | None = None
        """What the clients of this round have answered; None in honest rounds."""
        self.rank_at(top_k)
        self.build_with(num_items=num_items, num_clients=num_clients)

    def build(self, num_items: int, num_clients: int) -> None:
        """The item vectors and the users' vectors."""
        self.item_embedding = nn.Embedding(num_items, self.dim)
        with torch.no_grad():
            self.item_embedding.weight.normal_(generator=generator_for(self.seed, "global-model", PERSISTENT))
            self.item_embedding.weight.mul_(self.initial_scale)
        users = generator_for(self.seed, "users", PERSISTENT)
        self.private = {USER_EMBEDDING: self.initial_scale * initial_users(num_clients, self.dim, users)}

    @property
    def task(self) -> MatrixFactorizationTask:
        """The loss of the margin, with the steps of Protocol 1."""
        return self._task

    @property
    def row_parameters(self) -> tuple[str, ...]:
        """The item table: a client trains the rows of the items for which it has labels."""
        return (ITEM_EMBEDDING,)

    @property
    def rounds(self) -> int | None:
        return None if self.probing is None else self.probing.rounds

    @property
    def server_manipulation(self) -> str | None:
        return None if self.probing is None else "probe"

    def round_settings(self) -> dict[int, dict[str, Any]]:
        return {} if self.probing is None else self.probing.settings()

    def learns_from(self, round_number: int) -> bool:
        return self.probing is None or round_number < self.probing.after

    def answering(self) -> Answering:
        """How clients answer a server that calls them again and again.

        Raises:
            InputError: they protect themselves in a way of which the sum of many answers is not known.
        """
        others = [type(d).__name__ for d in self.defenses if not isinstance(d, RowNoise | RefuseProbes)]
        if others:
            raise InputError(
                expected="defences RowNoise and RefuseProbes with model.probing",
                found=", ".join(others),
                way_out="Remove them, or attack honest rounds.",
            )
        scales = [release.noise_scale for release in self._releases()]
        return Answering(
            loss=self.loss,
            learning_rate=self.local.learning_rate,
            batch=self.local.batch_size or 1,
            protocol="epochs" if self.local.updates is None else "batches",
            noise=math.hypot(*scales),
            clip=self.clip,
        )

    def setup(self, stage: str) -> None:
        """See `FederatedModule.setup`.

        Raises:
            InputError: the data do not say whom the server calls when it probes.
        """
        super().setup(stage)
        called = getattr(getattr(self.trainer, "datamodule", None), "called", None)
        if self.probing is not None and getattr(called, "after", None) != self.probing.after:
            raise InputError(
                expected=f"data.called.after of {self.probing.after}, as model.probing.after",
                found=str(called),
                way_out="Set data.called, so that the server calls the same clients in all rounds in which it probes.",
            )

    def interact(self, cohort: Cohort, model: Parameters) -> Cohort:
        """Refuses a client that cannot train; where the server probes, what the clients answer happens here.

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
        self._answered = None
        probes = not self.learns_from(cohort.round) and len(cohort) > 0
        return self._probe(cohort, model) if probes else cohort

    def _probe(self, cohort: Cohort, model: Parameters) -> Cohort:
        """The clients that answer, and of their items first those about which they have sent something."""
        assert self._campaign is not None
        own: Cohort = move_data_to_device(cohort, "cpu")
        users = self.private[USER_EMBEDDING][own.clients]
        answered = self._campaign.until(own, model[ITEM_EMBEDDING].cpu(), users)
        willing = torch.ones(len(own), dtype=torch.bool)
        for positions, sent in self._campaign.tables_sent():
            willing[positions] = self._willing(own.select(positions), {ITEM_EMBEDDING: sent.float()}).cpu()
        self._answered = answered.select(torch.nonzero(willing).flatten())
        called: Cohort = move_data_to_device(self._answered.cohort, self.device)
        return called

    def client_updates(self, cohort: Cohort, model: Parameters) -> tuple[Update, Tensor]:
        """See `FederatedModule.client_updates`; where the server probes, the sums of all that it was answered."""
        if self._answered is None or not len(cohort):
            return super().client_updates(cohort, model)
        rows = cohort.rows[ITEM_EMBEDDING]
        sums = self._answered.of(cohort).sums.float().to(self.device)
        update = Update({ITEM_EMBEDDING: sums}, {ITEM_EMBEDDING: rows}, clients=cohort.clients)
        return update, torch.zeros((), device=self.device)

    def served(self, cohort: Cohort) -> dict[str, Tensor]:
        """See `FederatedModule.served`; where the server probes, the number of messages about each item too."""
        shown = super().served(cohort)
        if self._answered is None:
            return shown
        return {**shown, "updates": self._answered.of(cohort).updates.long().to(self.device)}

    def truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """What each client likes."""
        return {"labels": cohort.examples["label"][:, : cohort.rows[ITEM_EMBEDDING].shape[1]]}

    def client_truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """The private vectors after the round; where the server probes, as the campaign has moved them."""
        if self._answered is None:
            return {"user_vector": self.private[USER_EMBEDDING][cohort.clients.cpu()]}
        return {"user_vector": self._answered.of(cohort).users}

    def priors(self, cohort: Cohort) -> dict[str, Tensor]:
        if self.leaning == "negative":
            return {}
        rates = (cohort.examples["label"].double() * cohort.mask).sum(1) / cohort.counts
        return {LEANING: torch.where(rates > 0.5, 1.0, -1.0)}

    def learner_description(self) -> dict[str, Any]:
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
