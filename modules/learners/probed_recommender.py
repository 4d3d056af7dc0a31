"""Base of recommenders whose server may probe its clients after honest rounds.

References:
    [London20], Protocol 2.
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
        self._campaign = None
        if probing is not None:
            self._campaign = Campaign(probing, self.answering(), seed=self.seed)

    @property
    def rounds(self) -> int | None:
        if self.probing is None:
            return None
        return self.probing.rounds

    @property
    def server_manipulation(self) -> str | None:
        if self.probing is None:
            return None
        return self.probing.name

    def round_settings(self) -> dict[int, dict[str, Any]]:
        if self.probing is None:
            return {}
        return self.probing.settings()

    def learns_from(self, round_number: int) -> bool:
        return self.probing is None or round_number < self.probing.after

    def answering(self) -> Answering:
        """Public parameters of the clients' answers to repeated calls."""
        allowed = RowNoise | RefuseProbes
        other_defenses = [type(defense).__name__ for defense in self.defenses if not isinstance(defense, allowed)]
        require(
            not other_defenses,
            "defences RowNoise and RefuseProbes with model.probing",
            ", ".join(other_defenses),
            "Remove them, or attack honest rounds.",
        )
        scales = [release.noise_scale for release in self.releases]
        # Independent Gaussian noises add up by their variances.
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
            selected_after = None if repeated is None else repeated.after
            require(
                selected_after == self.probing.after,
                f"data.repeated_selection.after of {self.probing.after}, as model.probing.after",
                selected_after,
                "Set data.repeated_selection, so that the server calls the same clients in all probing rounds.",
            )

    def interact(self, cohort: Cohort, model: Parameters) -> Cohort:
        """Checks that every client can train; in a probing round, replaces training with the answers to the server."""
        least = self.local.batch_size or 1
        short = torch.nonzero(cohort.counts < least).flatten().tolist()
        if short:
            client = int(cohort.clients[short[0]])
            count = int(cohort.counts[short[0]])
            raise InputError(
                expected=f"clients with at least {least} labels, one batch",
                found=f"client {client} with {count} ({len(short)} such clients)",
                way_out="Set a smaller local.batch_size, or data.fewest_labels to leave such clients out.",
            )
        self._answered = None
        if self.learns_from(cohort.round) or len(cohort) == 0:
            return cohort
        return self._probe(cohort, model)

    def _probe(self, cohort: Cohort, model: Parameters) -> Cohort:
        """Cohort of the clients that answer; the items of which they sent messages come first."""
        assert self._campaign is not None
        on_cpu: Cohort = move_data_to_device(cohort, "cpu")
        users = self.private[USER_EMBEDDING][on_cpu.clients]
        answered = self._campaign.until(on_cpu, model[ITEM_EMBEDDING].cpu(), users)
        # Each group of clients was sent a table of its own, which a client's defence may refuse; then it sends nothing.
        willing = torch.ones(len(on_cpu), dtype=torch.bool)
        for positions, sent in self._campaign.tables_sent():
            willing[positions] = self._willing(on_cpu.select(positions), {ITEM_EMBEDDING: sent.float()}).cpu()
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
