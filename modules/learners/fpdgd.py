"""FPDGD: federated pairwise differentiable gradient descent, online learning to rank from clicks.

References:
    S. Wang, B. Liu, S. Zhuang and G. Zuccon, "Effective and Privacy-preserving Federated Online Learning to Rank",
    ICTIR 2021.
    Oosterhuis and de Rijke, "Differentiable Unbiased Online Learning to Rank", CIKM 2018.
    Pham, Kulkarni and Houmansadr, "RAIFLE", NDSS 2025, arXiv:2310.19163, section V.B.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from attacks.manipulation.base import Manipulation
from datamodules.cohort import Cohort
from modules.engine.fast.gradients import Gradients, Parameters
from modules.engine.fast.memory import BufferPool
from modules.engine.local_hyperparameters import LocalTraining
from modules.engine.task import StackedTask
from modules.federated import Federation, Unpack
from modules.learners.online_ranker import ClickModel, ClickSimulator, OnlineRanker
from modules.nets.ranker import rank_scores, score_gradients
from protocol.click_models import LONGEST
from protocol.pdgd import click_coefficients, pair_weights, position_bias_ratio
from protocol.ranges import NonNegativeInt, PositiveFloat, PositiveInt

Ranking = Literal["plackett-luce", "shifted-scores"]
PAPER_LOCAL = LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=1)


class RankingTask(StackedTask):
    """Weighted pairwise preference of clicked over unclicked documents, the objective of PDGD.

    An example is a list: ``features (L, F)`` in displayed order, ``click (L,)``, ``shown (L,)`` True for documents.
    """

    def stacked_loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """Mean over the lists of a batch; FPDGD has batches of one list."""
        shown = examples["shown"] & mask[..., None]
        scores = rank_scores(parameters, examples["features"])
        clicks = examples["click"].to(scores.dtype)
        ratio = position_bias_ratio(scores.detach(), shown)
        preferred = torch.sigmoid(scores[..., :, None] - scores[..., None, :])
        pairs = clicks[..., :, None] * (1 - clicks[..., None, :]) * (shown[..., :, None] & shown[..., None, :])
        return -(preferred * ratio * pairs).sum((-1, -2, -3)) / mask.sum(1).clamp(min=1)

    def fast(self) -> Gradients:
        return _PairGradients(self)


class _PairGradients(Gradients):
    """Gradients of `RankingTask`."""

    def __init__(self, task: RankingTask) -> None:
        self.task = task

    def stacked(
        self, parameters: Parameters, examples: Parameters, mask: Tensor, buffers: BufferPool
    ) -> tuple[Tensor, Parameters]:
        """Linear in the clicks."""
        shown = examples["shown"] & mask[..., None]
        scores = rank_scores(parameters, examples["features"])
        clicks = examples["click"].to(scores.dtype) * shown
        lists = mask.sum(1).clamp(min=1)
        coefficients = -click_coefficients(pair_weights(scores, shown), clicks) / lists[:, None, None]
        losses = self.task.stacked_loss(parameters, examples, mask)
        return losses, score_gradients(parameters, examples["features"], coefficients)


@dataclass(frozen=True, kw_only=True)
class FPDGDSimulator(ClickSimulator):
    """Simulator of clients of `FPDGD`, differentiable in the clicks: a `RankingSimulator`.

    Attributes:
        learning_rate: local learning rate.
    """

    name: ClassVar[str] = "fpdgd"

    learning_rate: PositiveFloat

    def simulate_lists(
        self,
        model: Mapping[str, Tensor],
        features: Tensor,
        mask: Tensor,
        clicks: Tensor,
        order: Tensor | None = None,
    ) -> dict[str, Tensor]:
        clients, lists = mask.shape[:2]
        start: Parameters = {n: v.to(features.dtype).expand(clients, *v.shape) for n, v in model.items()}
        current = dict(start)
        everyone = torch.arange(clients)
        for step in range(lists):
            now = torch.full((clients,), step) if order is None else order[:, step]
            documents, shown = features[everyone, now], mask[everyone, now]
            weights = pair_weights(rank_scores(current, documents), shown)
            coefficients = self.learning_rate * click_coefficients(weights, clicks[everyone, now])
            change = score_gradients(current, documents, coefficients)
            current = {name: value + change[name] for name, value in current.items()}
        return {name: value - start[name] for name, value in current.items()}


class FPDGD(OnlineRanker):
    """Federated ranker trained by PDGD on clicks in lists of documents.

    In a round each client ranks the documents of its queries with the global model, clicks according to its click
    model, and takes one step per query. The displayed order is computed from the real features; the client trains on
    the features that the server sends, which a `manipulation` changes.

    Args:
        num_features: features of a document, None to take the number from the data.
        num_grades: grades of relevance, 3 or 5, None to take the number from the data.
        grade_law: share of each grade in the training data, None to take it from the data; public, so that a server
            can simulate clients.
        hidden: hidden units, 0 for a linear ranker.
        click_model: cascade click model of the clients.
        ranking: distribution of the displayed lists: ``plackett-luce``, or ``shifted-scores``, with probabilities
            proportional to the scores minus the smallest, as in RAIFLE's published code.
        shown: documents in a list, at most 10.
        manipulation: how the server changes the features that it sends, None for an honest server.
        new_model_every_round: draw the global model anew in every round, as RAIFLE does for every user.
        local: how clients train (the paper: one step of SGD with learning rate 0.1 per query).
        federation: arguments of `FederatedModule`.
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
        **federation: Unpack[Federation],
    ) -> None:
        super().__init__(
            num_features=num_features,
            num_grades=num_grades,
            grade_law=grade_law,
            hidden=hidden,
            click_model=click_model,
            shown=shown,
            local=local,
            **federation,
        )
        self.ranking: Ranking = ranking
        self.manipulation = manipulation
        self.new_model_every_round = new_model_every_round
        self.settings_of_rounds: dict[int, dict[str, Any]] = {}
        """Setting columns of each round, filled by callbacks that control the server."""

    @property
    def task(self) -> RankingTask:
        return RankingTask()

    @property
    def server_manipulation(self) -> str | None:
        return None if self.manipulation is None else self.manipulation.name

    def round_settings(self) -> dict[int, dict[str, Any]]:
        return self.settings_of_rounds

    def simulator(self) -> FPDGDSimulator:
        return FPDGDSimulator(
            learning_rate=self.local.learning_rate, click_model=self.click_model, grade_law=self.grade_law
        )

    def training_step(self, cohort: Cohort, batch_idx: int) -> None:
        """One communication round, of a new global model if `new_model_every_round` is set."""
        if self.new_model_every_round:
            fresh = self._fresh(cohort.round + 1)
            with torch.no_grad():
                for name, parameter in self.named_parameters():
                    parameter.copy_(fresh[name])
        super().training_step(cohort, batch_idx)

    def interact(self, cohort: Cohort, model: Parameters) -> Cohort:
        """Rankings of the clients, features from the server, and clicks.

        Returns:
            A cohort whose examples are lists: ``features (C, Q, L, F)``, ``click``, ``shown`` and ``document``
            ``(C, Q, L)``; lists with a gradient come first. With private retrieval also ``holder (C, Q)``.
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
        order = (~_has_gradient(clicks, shown)).long().argsort(dim=1, stable=True)
        lists = {
            "features": sent,
            "click": clicks,
            "shown": shown,
            "document": cohort.shared["row"][candidates].where(shown, -1),
            **holder,
        }
        rows = torch.arange(len(cohort))[:, None]
        examples = {name: value[rows, order] for name, value in lists.items()}
        mask = _has_gradient(examples["click"], examples["shown"])
        return dataclasses.replace(cohort, examples=examples, mask=mask, shared={})

    def served(self, cohort: Cohort) -> dict[str, Tensor]:
        """Displayed documents by list, see `RoundRecord`; empty with private retrieval."""
        if "holder" in cohort.examples:
            return {}
        return super().served(cohort)

    def truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """Clicks of each client; empty with private retrieval."""
        return {} if "holder" in cohort.examples else super().truth(cohort)

    def client_truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """With private retrieval ``member``: whether the client received the planted document."""
        holder = cohort.examples.get("holder")
        return {} if holder is None else {"member": holder.any(1).long()}

    def _rank(self, cohort: Cohort, scores: Tensor) -> Tensor:
        """``(C, Q, L)`` positions of the displayed documents in their query, best first, padded with -1."""
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
    """Features in which a document replaces one displayed document, drawn at random, of some clients.

    The planted document gets the click of the document that it replaces.

    Args:
        features: ``(C, Q, L, F)``.
        shown: ``(C, Q, L)`` True for documents.
        document: ``(F,)``.
        holders: ``(C,)`` True for the clients that receive it.
        generators: one per client.
    """
    draws = zip(shown.flatten(1).float(), generators, strict=True)
    place = [int(torch.multinomial(own, 1, generator=generator)) for own, generator in draws]
    flat = features.flatten(1, 2).clone()
    flat[holders, torch.tensor(place, dtype=torch.int64)[holders]] = document
    return flat.reshape(features.shape)


def _gumbel(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return -torch.empty(shape).exponential_(generator=generator).clamp(min=1e-30).log()


def _has_gradient(clicks: Tensor, shown: Tensor) -> Tensor:
    """``(C, Q)`` lists with both clicked and unclicked documents; other lists have no gradient."""
    return ((clicks > 0) & shown).any(2) & ((clicks == 0) & shown).any(2)
