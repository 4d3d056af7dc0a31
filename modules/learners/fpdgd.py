"""FPDGD: federated pairwise differentiable gradient descent, learning to rank from clicks (RAIFLE, section V.B)."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from attacks.manipulation.base import Manipulation
from datamodules.cohort import Cohort
from defenses.base import Defense
from modules.engine.local_hyperparameters import LocalTraining
from modules.engine.tasks import Parameters
from modules.federated import Weighting
from modules.learners.fpdgd_task import RankingTask
from modules.learners.online_ranker import ClickModel, OnlineRanker
from modules.nets.ranker import rank_scores
from modules.server import ServerOptimizer
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
        num_features: features of a document, None for those of the data.
        num_grades: grades of relevance, 3 or 5, None for those of the data.
        grade_law: how often each grade occurs in the training data, None for what they say; public, so that a server
            can simulate clients.
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
        num_features: int | None = None,
        num_grades: int | None = None,
        grade_law: Sequence[float] | None = None,
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
        self.settings_of_rounds: dict[int, dict[str, Any]] = {}
        """What a callback has chosen for the server, see `round_settings`."""

    @property
    def task(self) -> RankingTask:
        """One step of PDGD per query."""
        return self._task

    @property
    def server_manipulation(self) -> str | None:
        """Name of the manipulation of features."""
        return None if self.manipulation is None else self.manipulation.name

    def round_settings(self) -> dict[int, dict[str, Any]]:
        """Columns that scores of a round get."""
        return self.settings_of_rounds

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
            ``(C, Q, L)``, the lists that can be learnt from first. Under private retrieval also ``holder (C, Q)``.
        """
        pool = cohort.shared["features"]
        stacked = {name: value[None] for name, value in model.items()}
        scores = rank_scores(stacked, pool[None])[0] if len(pool) else pool.new_zeros(0)
        document = self._rank(cohort, scores)
        shown = document >= 0
        position = document.clamp(min=0)
        candidates = cohort.examples["document"].clamp(min=0).gather(2, position)
        grades = cohort.examples["grade"].gather(2, position)
        real, manipulation = pool[candidates] * shown[..., None], self.manipulation
        holder = {name: value for name, value in cohort.examples.items() if name == "holder"}
        if holder:
            document = cohort.shared["planted"]
            real = plant(real, shown, document, holder["holder"][:, 0], self._generators("retrieval", cohort))
            manipulation = None if manipulation is None else manipulation.knowing(document)
        sent = real
        if manipulation is not None:
            generators = self._generators("manipulation", cohort)
            sent = manipulation.of_cohort(model, real, shown, generators=generators)
        clicks = self._click(cohort, grades, shown)
        order = (~_teaches(clicks, shown)).long().argsort(dim=1, stable=True)
        lists = {
            "features": sent,
            "click": clicks,
            "shown": shown,
            "document": cohort.shared["row"][candidates].where(shown, -1),
            **holder,
        }
        rows = torch.arange(len(cohort))[:, None]
        examples = {name: value[rows, order] for name, value in lists.items()}
        mask = _teaches(examples["click"], examples["shown"])
        return dataclasses.replace(cohort, examples=examples, mask=mask, shared={})

    def served(self, cohort: Cohort) -> dict[str, Tensor]:
        """The documents shown, list by list; nothing under private retrieval; see `modules.federated.RoundRecord`."""
        if "holder" in cohort.examples:
            return {}
        document = cohort.examples["document"]
        number = torch.arange(document.shape[1])[:, None].expand(document.shape[1:])
        usable = (document >= 0) & cohort.mask[..., None]
        return {
            "served": document.where(usable, -1).flatten(1),
            "lists": number.expand(document.shape).where(usable, -1).flatten(1),
            "features": cohort.examples["features"].flatten(1, 2),
        }

    def truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """What each client clicked, where the server knows of what."""
        return {} if "holder" in cohort.examples else super().truth(cohort)

    def client_truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """Under private retrieval ``member``: whether the client got the planted document."""
        holder = cohort.examples.get("holder")
        return {} if holder is None else {"member": holder.any(1).long()}

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


def plant(
    features: Tensor, shown: Tensor, document: Tensor, holders: Tensor, generators: Sequence[torch.Generator]
) -> Tensor:
    """The features with a document in the place of one that was shown, drawn at random, for some clients.

    It is clicked as the document was that it takes the place of.

    Args:
        features: ``(C, Q, L, F)``.
        shown: ``(C, Q, L)`` True for documents.
        document: ``(F,)``.
        holders: ``(C,)`` True for the clients that get it.
        generators: one of each client.
    """
    draws = zip(shown.flatten(1).float(), generators, strict=True)
    place = [int(torch.multinomial(own, 1, generator=generator)) for own, generator in draws]
    flat = features.flatten(1, 2).clone()
    flat[holders, torch.tensor(place, dtype=torch.int64)[holders]] = document
    return flat.reshape(features.shape)


def _gumbel(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return -torch.empty(shape).exponential_(generator=generator).clamp(min=1e-30).log()


def _teaches(clicks: Tensor, shown: Tensor) -> Tensor:
    """``(C, Q)`` lists of which something was clicked, and not all: no other list moves the ranker."""
    return ((clicks > 0) & shown).any(2) & ((clicks == 0) & shown).any(2)
