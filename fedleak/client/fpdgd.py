"""Clients of FPDGD: pairwise differentiable gradient descent on clicks.

The update of one query is ``sum_ij w_ij I_i (1 - I_j) (grad s_i - grad s_j)`` with symmetric ``w``, which equals
``sum_i c_i grad s_i`` with ``c = (diag(w 1) - w) I``: linear in the clicks.

References:
    [Wang21].
    [Oosterhuis18].
"""

import functools
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedleak.client.algorithm import Model
from fedleak.client.engine.fast.gradients import Gradients, Parameters
from fedleak.client.engine.fast.memory import BufferPool
from fedleak.client.engine.task import StackedTask
from fedleak.client.ranking import RankingAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.ranges import PositiveFloat
from fedleak.core.rankers import rank_scores, score_gradients, stack_model


@functools.cache
def _changed_normalisers(length: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Triples of positions ``i < k <= j``: i, j and k ``(T,)``, and ``(T, L L)`` 1 where a triple counts for a pair."""
    first, second = torch.triu_indices(length, length, offset=1)
    position = torch.arange(length)
    # Swapping i < j changes the normalisers of positions k with i < k <= j.
    pair_index, normaliser = torch.nonzero((position > first[:, None]) & (position <= second[:, None]), as_tuple=True)
    # Each pair (i, j) has two entries of the (L, L) matrix, flattened: above and below the diagonal.
    upper = first * length + second
    lower = second * length + first
    entries = torch.eye(length * length)
    pairs = entries[upper] + entries[lower]
    return first[pair_index], second[pair_index], normaliser, pairs[pair_index]


def position_bias_ratio(
    scores: Tensor, mask: Tensor, *, order: Tensor | None = None, half_detached: bool = False
) -> Tensor:
    """``(..., L, L)`` probability of the ranking with two documents swapped, relative to both: P(R*) / (P(R) + P(R*)).

    P is Plackett-Luce over the shown documents. Swapping positions i < j changes only the normalisers of positions i+1
    to j, each by exp(s_i) - exp(s_j).

    Args:
        scores: ``(..., L)`` in displayed order.
        mask: ``(..., L)`` True for documents; padding comes last.
        order: ``(..., L)`` positions in the order that is taken for the displayed one, None for the displayed order;
            RAIFLE's published code takes `order_in_file`.
        half_detached: gradients pass only through P(R), as in RAIFLE's published code, which rebuilds log P(R*) from a
            list of numbers and so detaches it. The value is the same; the gradient is not that of the value.
    """
    if order is not None:
        # The ratio of the other order, whose rows and columns are then put back into the displayed order.
        ratio = position_bias_ratio(scores.gather(-1, order), mask.gather(-1, order), half_detached=half_detached)
        rank_of_document = order.argsort(-1)
        row = rank_of_document[..., None].expand(ratio.shape)
        column = rank_of_document[..., None, :].expand(ratio.shape)
        return ratio.gather(-2, row).gather(-1, column)
    length = scores.shape[-1]
    largest = scores.detach().masked_fill(~mask, -torch.inf).amax(-1, keepdim=True)
    weights = torch.exp(scores - largest.nan_to_num(neginf=0.0)) * mask
    # log P(R) = sum_k s_k - log Z_k with Z_k = sum_{l >= k} exp(s_l): `tails` are the Z_k, relative to the largest.
    tails = weights.flip(-1).cumsum(-1).flip(-1)
    first, second, normaliser, pairs = (index.to(scores.device) for index in _changed_normalisers(length))
    tiny = torch.finfo(scores.dtype).tiny
    normalisers = tails.clamp(min=tiny).log() * mask
    # Z_k after a swap of i < k <= j: exp(s_i) enters the tail, exp(s_j) leaves it to the front.
    swapped = (tails[..., normaliser] + weights[..., first] - weights[..., second]).clamp(min=tiny).log()
    # log P(R*) - log P(R) = sum over changed k of log Z_k - log Z*_k; the ratio is its sigmoid.
    log_ratios = (normalisers[..., normaliser] - swapped) * mask[..., normaliser]
    log_odds = (log_ratios @ pairs.to(log_ratios)).reshape(*scores.shape, length)
    if half_detached:
        # The published code's gradient is that of -log P(R) alone, whose scores cancel from both rankings.
        log_ranking = normalisers.sum(-1)
        log_odds = log_odds.detach() + (log_ranking - log_ranking.detach())[..., None, None]
    return torch.sigmoid(log_odds)


def pair_weights(scores: Tensor, mask: Tensor, *, order: Tensor | None = None, half_detached: bool = False) -> Tensor:
    """``(..., L, L)`` weights of all pairs: the sigmoid's derivative at the score difference, times the bias ratio.

    Zero on the diagonal and at padding; see `position_bias_ratio` for the arguments.
    """
    # rho_ij sigma'(s_i - s_j), with sigma' = sigma (1 - sigma).
    preferred = torch.sigmoid(scores[..., :, None] - scores[..., None, :])
    ratio = position_bias_ratio(scores, mask, order=order, half_detached=half_detached)
    different = ~torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
    pairs = mask[..., :, None] & mask[..., None, :] & different
    return preferred * (1 - preferred) * ratio * pairs


def order_in_file(document: Tensor, mask: Tensor) -> Tensor:
    """``(..., L)`` positions of the documents ``(..., L)`` of each list in the order of their numbers, padding last."""
    return document.masked_fill(~mask, torch.iinfo(document.dtype).max).argsort(-1)


def laplacian(weights: Tensor) -> Tensor:
    """``diag(w 1) - w``, ``(..., L, L)``: maps clicks to the documents' coefficients."""
    return torch.diag_embed(weights.sum(-1)) - weights


def click_coefficients(weights: Tensor, clicks: Tensor) -> Tensor:
    """``(..., L)`` coefficients of the documents' score gradients, for clicks ``(..., L)`` in [0, 1]."""
    return weights.sum(-1) * clicks - (weights @ clicks[..., None]).squeeze(-1)


Variant = Literal["corrected", "as-published-code"]


@dataclass(frozen=True, kw_only=True)
class FPDGDAlgorithm(RankingAlgorithm, StackedTask):
    """Clients that prefer clicked over unclicked documents, by weighted pairs: the objective of PDGD.

    An example is a list: ``features (L, F)`` in displayed order, ``click (L,)``, ``shown (L,)`` True for documents, and
    their numbers ``document (L,)``.

    Attributes:
        learning_rate: local learning rate.
        variant: see `fedleak.modules.learners.fpdgd.FPDGD`.
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
        # The bias ratio is a weight, through which no gradient passes.
        ratio = position_bias_ratio(scores.detach(), shown, order=self.order(examples, shown))
        # A clicked document i is preferred over a shown one j without a click.
        both_shown = shown[..., :, None] & shown[..., None, :]
        pairs = clicks[..., :, None] * (1 - clicks[..., None, :]) * both_shown
        return -(preferred * ratio * pairs).sum((-1, -2, -3)) / mask.sum(1).clamp(min=1)

    def order(self, examples: Parameters, shown: Tensor) -> Tensor | None:
        """Order of the documents for the bias ratio, see `pair_weights`."""
        if self.variant == "as-published-code":
            return order_in_file(examples["document"].long(), shown)
        return None

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
        current = dict(start)
        everyone = torch.arange(clients)
        for step in range(lists):
            # Clients may have their lists in different orders.
            position = torch.full_like(everyone, step) if order is None else order[:, step]
            list_of_step = (everyone, position)
            documents = features[list_of_step]
            shown = mask[list_of_step]
            bias_order = None
            if self.variant == "as-published-code" and document is not None:
                bias_order = order_in_file(document[list_of_step], shown)
            scores = rank_scores(current, documents)
            weights = pair_weights(scores, shown, order=bias_order, half_detached=half_detached)
            # A list changes the model by lr sum_i c_i grad s_i with c = (diag(w 1) - w) I; the next list starts there.
            coefficients = self.learning_rate * click_coefficients(weights, clicks[list_of_step])
            change = score_gradients(current, documents, coefficients)
            current = {name: value + change[name] for name, value in current.items()}
        return {name: value - start[name] for name, value in current.items()}


class _PairGradients(Gradients):
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
