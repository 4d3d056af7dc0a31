"""Base of recommenders whose server may probe its clients after honest rounds.

References:
    B. London, "PAC Identifiability in Federated Personalization", 2020, Protocol 2.
"""

import math
from typing import Any

import torch
from lightning.fabric.utilities.apply_func import move_data_to_device
from torch import Tensor

from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.margin_losses import LossName
from fedleak.client.recommendation import USER_EMBEDDING
from fedleak.core.errors import InputError, require
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.defenses.base import Update
from fedleak.defenses.refusal import RefuseProbes
from fedleak.defenses.row_noise import RowNoise
from fedleak.modules.learners.recommender import HeldOutRanking
from fedleak.server.probe_answers import Answering
from fedleak.server.probe_campaign import Answered, Campaign
from fedleak.server.probing import Probing
from fedleak.training.data import data_of


class ProbedRecommender(HeldOutRanking):
    """Recommender with private user vectors and a margin loss, whose probing rounds follow its honest rounds.

    Attributes:
        loss: loss of the margin.
        clip: L2 norm to which the gradient of each item's vector is clipped, None for no clipping.
        probing: the server's probing, None for an honest server.
    """

    loss: LossName
    clip: float | None
    probing: Probing | None = None
    _campaign: Campaign | None = None
    _answered: Answered | None = None
    """Answers of this round's clients to the probing server; None in honest rounds."""

    def probe_with(self, probing: Probing | None) -> None:
        """Sets the server's probing; called by the constructor of a subclass after `loss` and `clip` are set."""
        self.probing = probing
        self._campaign = None if probing is None else Campaign(probing, self.answering(), seed=self.seed)

    @property
    def rounds(self) -> int | None:
        return None if self.probing is None else self.probing.rounds

    @property
    def server_manipulation(self) -> str | None:
        return None if self.probing is None else self.probing.name

    def round_settings(self) -> dict[int, dict[str, Any]]:
        return {} if self.probing is None else self.probing.settings()

    def learns_from(self, round_number: int) -> bool:
        return self.probing is None or round_number < self.probing.after

    def answering(self) -> Answering:
        """Public parameters of the clients' answers to repeated calls."""
        others = [type(d).__name__ for d in self.defenses if not isinstance(d, RowNoise | RefuseProbes)]
        require(
            not others,
            "defences RowNoise and RefuseProbes with model.probing",
            ", ".join(others),
            "Remove them, or attack honest rounds.",
        )
        scales = [release.noise_scale for release in self.releases]
        return Answering(
            loss=self.loss,
            learning_rate=self.local.learning_rate,
            batch=self.local.batch_size or 1,
            protocol="epochs" if self.local.updates is None else "batches",
            noise=math.hypot(*scales),
            clip=self.clip,
        )

    def setup(self, stage: str) -> None:
        """Checks the precision, and that the data choose the clients of a probing server."""
        super().setup(stage)
        if self.probing is not None:
            data = data_of(self.trainer)
            repeated = None if data is None else data.repeated_selection
            require(
                repeated is not None and repeated.after == self.probing.after,
                f"data.repeated_selection.after of {self.probing.after}, as model.probing.after",
                None if repeated is None else repeated.after,
                "Set data.repeated_selection, so that the server calls the same clients in all probing rounds.",
            )

    def interact(self, cohort: Cohort, model: Parameters) -> Cohort:
        """Checks that every client can train; in a probing round, replaces training with the answers to the server."""
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
        """Cohort of the clients that answer; the items of which they sent messages come first."""
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
        """Update of local training; in a probing round, the sums of the messages about each item."""
        if self._answered is None or not len(cohort):
            return super().client_updates(cohort, model)
        rows = cohort.rows[ITEM_EMBEDDING]
        sums = self._answered.of(cohort).sums.float().to(self.device)
        update = Update({ITEM_EMBEDDING: sums}, {ITEM_EMBEDDING: rows}, clients=cohort.clients)
        return update, torch.zeros((), device=self.device)

    def served(self, cohort: Cohort) -> dict[str, Tensor]:
        """Labelled items of each client; in a probing round, also the number of messages about each."""
        shown = super().served(cohort)
        if self._answered is None:
            return shown
        return {**shown, "updates": self._answered.of(cohort).updates.long().to(self.device)}

    def client_truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """User vectors after the round; in a probing round, as the campaign has changed them."""
        if self._answered is None:
            return {"user_vector": self.private[USER_EMBEDDING][cohort.clients.cpu()]}
        return {"user_vector": self._answered.of(cohort).users}
