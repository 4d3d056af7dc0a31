"""Pair weights of pairwise differentiable gradient descent (PDGD).

The update of one query is ``sum_ij w_ij I_i (1 - I_j) (grad s_i - grad s_j)`` with symmetric ``w``, which equals
``sum_i c_i grad s_i`` with ``c = (diag(w 1) - w) I``: linear in the clicks.

References:
    Oosterhuis and de Rijke, "Differentiable Unbiased Online Learning to Rank", CIKM 2018.
"""

import functools

import torch
from torch import Tensor


@functools.cache
def _changed_normalisers(length: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Triples of positions ``i < k <= j``: i, j and k ``(T,)``, and ``(T, L L)`` 1 where a triple counts for a pair."""
    first, second = torch.triu_indices(length, length, offset=1)
    place = torch.arange(length)
    pair, at = torch.nonzero((place > first[:, None]) & (place <= second[:, None]), as_tuple=True)
    upper, lower = first * length + second, second * length + first
    pairs = torch.eye(length * length)[upper] + torch.eye(length * length)[lower]
    return first[pair], second[pair], at, pairs[pair]


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
        ratio = position_bias_ratio(scores.gather(-1, order), mask.gather(-1, order), half_detached=half_detached)
        place = order.argsort(-1)
        rows = ratio.gather(-2, place[..., None].expand(ratio.shape))
        return rows.gather(-1, place[..., None, :].expand(ratio.shape))
    length = scores.shape[-1]
    largest = scores.detach().masked_fill(~mask, -torch.inf).amax(-1, keepdim=True)
    weights = torch.exp(scores - largest.nan_to_num(neginf=0.0)) * mask
    tails = weights.flip(-1).cumsum(-1).flip(-1)
    first, second, at, pairs = (index.to(scores.device) for index in _changed_normalisers(length))
    tiny = torch.finfo(scores.dtype).tiny
    normalisers = tails.clamp(min=tiny).log() * mask
    swapped = (tails[..., at] + weights[..., first] - weights[..., second]).clamp(min=tiny).log()
    logs = (normalisers[..., at] - swapped) * mask[..., at]
    difference = (logs @ pairs.to(logs)).reshape(*scores.shape, length)
    if half_detached:
        own = normalisers.sum(-1)
        difference = difference.detach() + (own - own.detach())[..., None, None]
    return torch.sigmoid(difference)


def pair_weights(scores: Tensor, mask: Tensor, *, order: Tensor | None = None, half_detached: bool = False) -> Tensor:
    """``(..., L, L)`` weights of all pairs: the sigmoid's derivative at the score difference, times the bias ratio.

    Zero on the diagonal and at padding; see `position_bias_ratio` for the arguments.
    """
    preferred = torch.sigmoid(scores[..., :, None] - scores[..., None, :])
    ratio = position_bias_ratio(scores, mask, order=order, half_detached=half_detached)
    others = ~torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
    return preferred * (1 - preferred) * ratio * (mask[..., :, None] & mask[..., None, :] & others)


def order_in_file(document: Tensor, mask: Tensor) -> Tensor:
    """``(..., L)`` positions of the documents ``(..., L)`` of each list in the order of their numbers, padding last."""
    return document.masked_fill(~mask, torch.iinfo(document.dtype).max).argsort(-1)


def laplacian(weights: Tensor) -> Tensor:
    """``diag(w 1) - w``, ``(..., L, L)``: maps clicks to the documents' coefficients."""
    return torch.diag_embed(weights.sum(-1)) - weights


def click_coefficients(weights: Tensor, clicks: Tensor) -> Tensor:
    """``(..., L)`` coefficients of the documents' score gradients, for clicks ``(..., L)`` in [0, 1]."""
    return weights.sum(-1) * clicks - (weights @ clicks[..., None]).squeeze(-1)
