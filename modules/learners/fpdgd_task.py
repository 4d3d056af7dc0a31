"""The local step of FPDGD, federated pairwise differentiable gradient descent (Wang et al. 2021; RAIFLE, V.B)."""

import torch
from torch import Tensor

from modules.engine.fast.buffer_pool import BufferPool
from modules.engine.tasks import Parameters
from modules.nets.ranker import rank_scores, score_gradients
from protocol.pdgd import click_coefficients, pair_weights, position_bias_ratio


class RankingTask:
    """Rewards a clicked document's score over an unclicked one's, pair by pair, each pair by its weight.

    An example is a list: ``features (L, F)`` in displayed order, ``click (L,)``, ``shown (L,)`` True for documents.
    """

    batched_by_hand = True
    random = False

    def client_losses(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """See `modules.engine.tasks.Task`; the mean over the lists of a batch, which FPDGD has one by one."""
        shown = examples["shown"] & mask[..., None]
        scores = rank_scores(parameters, examples["features"])
        clicks = examples["click"].to(scores.dtype)
        ratio = position_bias_ratio(scores.detach(), shown)
        preferred = torch.sigmoid(scores[..., :, None] - scores[..., None, :])
        pairs = clicks[..., :, None] * (1 - clicks[..., None, :]) * (shown[..., :, None] & shown[..., None, :])
        return -(preferred * ratio * pairs).sum((-1, -2, -3)) / mask.sum(1).clamp(min=1)

    def client_loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        stacked = {name: value[None] for name, value in parameters.items()}
        return self.client_losses(stacked, {name: value[None] for name, value in examples.items()}, mask[None])[0]

    def client_gradients(
        self, parameters: Parameters, examples: Parameters, mask: Tensor, buffers: BufferPool
    ) -> tuple[Tensor, Parameters]:
        """See `modules.engine.tasks.Task`: linear in the clicks, so it is short."""
        shown = examples["shown"] & mask[..., None]
        scores = rank_scores(parameters, examples["features"])
        clicks = examples["click"].to(scores.dtype) * shown
        lists = mask.sum(1).clamp(min=1)
        coefficients = -click_coefficients(pair_weights(scores, shown), clicks) / lists[:, None, None]
        losses = self.client_losses(parameters, examples, mask)
        return losses, score_gradients(parameters, examples["features"], coefficients)
