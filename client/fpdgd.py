"""Clients of FPDGD: pairwise differentiable gradient descent on clicks.

References:
    S. Wang, B. Liu, S. Zhuang and G. Zuccon, "Effective and Privacy-preserving Federated Online Learning to Rank",
    ICTIR 2021.
    Oosterhuis and de Rijke, "Differentiable Unbiased Online Learning to Rank", CIKM 2018.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from client.algorithm import Model
from client.engine.fast.gradients import Gradients, Parameters
from client.engine.fast.memory import BufferPool
from client.engine.task import StackedTask
from client.pdgd import click_coefficients, order_in_file, pair_weights, position_bias_ratio
from client.ranking import RankingAlgorithm
from protocol.errors import ViewError
from protocol.ranges import PositiveFloat
from protocol.rankers import rank_scores, score_gradients, stack_model

Variant = Literal["corrected", "as-published-code"]


@dataclass(frozen=True, kw_only=True)
class FPDGDAlgorithm(RankingAlgorithm, StackedTask):
    """Clients that prefer clicked over unclicked documents, by weighted pairs: the objective of PDGD.

    An example is a list: ``features (L, F)`` in displayed order, ``click (L,)``, ``shown (L,)`` True for documents, and
    their numbers ``document (L,)``.

    Attributes:
        learning_rate: local learning rate.
        variant: see `modules.learners.fpdgd.FPDGD`.
    """

    name: ClassVar[str] = "fpdgd"

    learning_rate: PositiveFloat
    variant: Variant = "corrected"

    def stacked_loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """Mean over the lists of a batch; FPDGD has batches of one list."""
        shown = examples["shown"] & mask[..., None]
        scores = rank_scores(parameters, examples["features"])
        clicks = examples["click"].to(scores.dtype)
        preferred = torch.sigmoid(scores[..., :, None] - scores[..., None, :])
        ratio = position_bias_ratio(scores.detach(), shown, order=self.order(examples, shown))
        pairs = clicks[..., :, None] * (1 - clicks[..., None, :]) * (shown[..., :, None] & shown[..., None, :])
        return -(preferred * ratio * pairs).sum((-1, -2, -3)) / mask.sum(1).clamp(min=1)

    def order(self, examples: Parameters, shown: Tensor) -> Tensor | None:
        """Order of the documents for the bias ratio, see `pair_weights`."""
        return order_in_file(examples["document"].long(), shown) if self.variant == "as-published-code" else None

    def fast(self) -> Gradients:
        return _PairGradients(self)

    def simulate_lists(
        self,
        model: Model,
        features: Tensor,
        mask: Tensor,
        clicks: Tensor,
        order: Tensor | None = None,
        *,
        document: Tensor | None = None,
        half_detached: bool = False,
    ) -> dict[str, Tensor]:
        clients, lists = mask.shape[:2]
        if self.variant == "as-published-code" and document is None:
            raise ViewError("expected the numbers of the documents, whose order the published code takes, got none")
        start = stack_model({name: value.to(features.dtype) for name, value in model.items()}, clients)
        current, everyone = dict(start), torch.arange(clients)
        for step in range(lists):
            now = everyone, order[:, step] if order is not None else torch.full_like(everyone, step)
            documents, shown, place = features[now], mask[now], None
            if self.variant == "as-published-code" and document is not None:
                place = order_in_file(document[now], shown)
            scores = rank_scores(current, documents)
            weights = pair_weights(scores, shown, order=place, half_detached=half_detached)
            coefficients = self.learning_rate * click_coefficients(weights, clicks[now])
            change = score_gradients(current, documents, coefficients)
            current = {name: value + change[name] for name, value in current.items()}
        return {name: value - start[name] for name, value in current.items()}


class _PairGradients(Gradients):
    """Gradients of the pairwise loss."""

    def __init__(self, algorithm: FPDGDAlgorithm) -> None:
        self.algorithm = algorithm

    def stacked(
        self, parameters: Parameters, examples: Parameters, mask: Tensor, buffers: BufferPool
    ) -> tuple[Tensor, Parameters]:
        """Linear in the clicks."""
        shown = examples["shown"] & mask[..., None]
        scores = rank_scores(parameters, examples["features"])
        clicks = examples["click"].to(scores.dtype) * shown
        lists = mask.sum(1).clamp(min=1)
        weights = pair_weights(scores, shown, order=self.algorithm.order(examples, shown))
        coefficients = -click_coefficients(weights, clicks) / lists[:, None, None]
        losses = self.algorithm.stacked_loss(parameters, examples, mask)
        return losses, score_gradients(parameters, examples["features"], coefficients)
