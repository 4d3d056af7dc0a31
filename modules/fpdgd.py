"""FPDGD: federated pairwise differentiable gradient descent, learning to rank from clicks (RAIFLE, section V.B)."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from attacks.manipulation.base import Manipulation
from datamodules.cohort import Cohort
from defenses.base import Defense
from modules.federated import Weighting
from modules.local_hyperparameters import LocalTraining
from modules.nets.ranker import rank_scores
from modules.online_ranker import ClickModel, OnlineRanker
from modules.ranking import RankingTask
from modules.server import ServerOptimizer
from modules.tasks import Parameters
from protocol.click_models import LONGEST
from ranges import NonNegativeInt, PositiveInt

Ranking = Literal["plackett-luce", "shifted-scores"]
PAPER_LOCAL = LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=1)


class FPDGD(OnlineRanker):
    """A ranker that learns from clicks on lists of ten.

    In a round each client ranks the documents of its queries with the global model, clicks as its click model says,
    and makes one step per query, in an order of its own. The order shown comes of the real features; what a server
    that manipulates sends instead is what the client trains on.

    Args:
        num_features: features of a document.
        num_grades: grades of relevance, 3 or 5.
        num_clients: clients, for the interface: none of them keeps anything private here.
        grade_law: how often each grade occurs in the training data: public, so that a server can simulate clients.
        hidden: hidden units, 0 for a linear ranker.
        click_model: how clients click.
        ranking: how the shown documents are drawn: ``plackett-luce``, or ``shifted-scores``, with probabilities
            proportional to the scores less the smallest, as in RAIFLE's published code.
        shown: documents in a list, at most 10.
        manipulation: what the server sends instead of the real features, None for those.
        new_model_every_round: draw the global model anew in every round, as RAIFLE does for every user.
        local: how clients train (the paper: one step of SGD at 0.1 per query).
        server: what the server does with the average.
        defenses: what clients do to protect themselves.
        weighting: whether a client counts by its queries or as one.
        seed: seed of every draw.
    """

    def __init__(
        self,
        *,
        num_features: int,
        num_grades: int,
        num_clients: int,
        grade_law: Sequence[float],
        hidden: NonNegativeInt = 0,
        click_model: ClickModel = "informational",
        ranking: Ranking = "plackett-luce",
        shown: PositiveInt = LONGEST,
        manipulation: Manipulation | None = None,
        new_model_every_round: bool = False,
        local: LocalTraining = PAPER_LOCAL,
        server: ServerOptimizer = ServerOptimizer(),  # noqa: B008 - frozen
        defenses: Sequence[Defense] = (),
        weighting: Weighting = "examples",
        seed: int = 0,
    ) -> None:
        super().__init__(
            num_features=num_features,
            num_grades=num_grades,
            grade_law=grade_law,
            hidden=hidden,
            click_model=click_model,
            shown=shown,
            local=local,
            server=server,
            defenses=defenses,
            weighting=weighting,
            seed=seed,
        )
        self._task = RankingTask()
        self.ranking: Ranking = ranking
        self.manipulation = manipulation
        self.new_model_every_round = new_model_every_round

    @property
    def task(self) -> RankingTask:
        """One step of PDGD per query."""
        return self._task

    @property
    def server_manipulation(self) -> str | None:
        """Name of the manipulation of features."""
        return None if self.manipulation is None else self.manipulation.name

    def learner_description(self) -> dict[str, Any]:
        arguments = {
            "learning_rate": self.local.learning_rate,
            "click_model": self.click_model,
            "grade_law": self.grade_law,
        }
        return {"name": "fpdgd", "arguments": arguments}

    def training_step(self, cohort: Cohort, batch_idx: int) -> None:
        """One communication round."""
        if self.new_model_every_round:
            fresh = self._fresh(cohort.round + 1)
            with torch.no_grad():
                for name, parameter in self.named_parameters():
                    parameter.copy_(fresh[name])
        super().training_step(cohort, batch_idx)

    def interact(self, cohort: Cohort, model: Parameters) -> Cohort:
        """The clients rank, the server sends features, the clients click.

        Returns:
            A cohort whose examples are lists: ``features (C, Q, L, F)``, ``click``, ``shown`` and ``document``
            ``(C, Q, L)``, the lists that can be learnt from first.
        """
        pool = cohort.shared["features"]
        stacked = {name: value[None] for name, value in model.items()}
        scores = rank_scores(stacked, pool[None])[0] if len(pool) else pool.new_zeros(0)
        document = self._rank(cohort, scores)
        shown = document >= 0
        position = document.clamp(min=0)
        candidates = cohort.examples["document"].clamp(min=0).gather(2, position)
        grades = cohort.examples["grade"].gather(2, position)
        real = pool[candidates] * shown[..., None]
        sent = real
        if self.manipulation is not None:
            generators = self._generators("manipulation", cohort)
            sent = self.manipulation.of_cohort(model, real, shown, generators=generators)
        clicks = self._click(cohort, grades, shown)
        order = (~_teaches(clicks, shown)).long().argsort(dim=1, stable=True)
        lists = {
            "features": sent,
            "click": clicks,
            "shown": shown,
            "document": cohort.shared["row"][candidates].where(shown, -1),
        }
        rows = torch.arange(len(cohort))[:, None]
        examples = {name: value[rows, order] for name, value in lists.items()}
        mask = _teaches(examples["click"], examples["shown"])
        return dataclasses.replace(cohort, examples=examples, mask=mask, shared={})

    def served(self, cohort: Cohort) -> dict[str, Tensor]:
        """The documents shown, list by list; see `modules.federated.RoundRecord`."""
        document = cohort.examples["document"]
        number = torch.arange(document.shape[1])[:, None].expand(document.shape[1:])
        usable = (document >= 0) & cohort.mask[..., None]
        return {
            "served": document.where(usable, -1).flatten(1),
            "lists": number.expand(document.shape).where(usable, -1).flatten(1),
            "features": cohort.examples["features"].flatten(1, 2),
        }

    def _rank(self, cohort: Cohort, scores: Tensor) -> Tensor:
        """``(C, Q, L)`` places of the shown documents among a query's own, best first, padded with -1."""
        document = cohort.examples["document"]
        real = document >= 0
        values = scores[document.clamp(min=0)].masked_fill(~real, torch.inf)
        if self.ranking == "shifted-scores":
            values = (values - values.amin(2, keepdim=True) + 1e-10).log()
        noise = torch.stack([_gumbel(document.shape[1:], g) for g in self._generators("ranking", cohort)])
        keys = (values + noise).masked_fill(~real, -torch.inf)
        best = keys.topk(min(self.shown, keys.shape[2]), dim=2)
        padding = self.shown - best.indices.shape[2]
        return nn.functional.pad(best.indices.where(torch.isfinite(best.values), -1), (0, padding), value=-1)


def _gumbel(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return -torch.empty(shape).exponential_(generator=generator).clamp(min=1e-30).log()


def _teaches(clicks: Tensor, shown: Tensor) -> Tensor:
    """``(C, Q)`` lists of which something was clicked, and not all: no other list moves the ranker."""
    return ((clicks > 0) & shown).any(2) & ((clicks == 0) & shown).any(2)
