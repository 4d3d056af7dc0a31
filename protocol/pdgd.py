"""Pair weights of pairwise differentiable gradient descent (PDGD).

The update of one query is ``sum_ij w_ij I_i (1 - I_j) (grad s_i - grad s_j)`` with symmetric ``w``, which equals
``sum_i c_i grad s_i`` with ``c = (diag(w 1) - w) I``: linear in the clicks.

References:
    Oosterhuis and de Rijke, "Differentiable Unbiased Online Learning to Rank", CIKM 2018.
"""

import torch
from torch import Tensor


def position_bias_ratio(scores: Tensor, mask: Tensor) -> Tensor:
    """``(..., L, L)`` probability of the ranking with two documents swapped, relative to both: P(R*) / (P(R) + P(R*)).

    P is Plackett-Luce over the shown documents. Swapping positions i < j changes only the normalisers of positions i+1
    to j, each by exp(s_i) - exp(s_j).

    Args:
        scores: ``(..., L)`` in displayed order.
        mask: ``(..., L)`` True for documents; padding comes last.
    """
    length = scores.shape[-1]
    largest = scores.masked_fill(~mask, -torch.inf).amax(-1, keepdim=True)
    weights = torch.exp(scores - largest.nan_to_num(neginf=0.0)) * mask
    tails = weights.flip(-1).cumsum(-1).flip(-1)
    difference = weights[..., :, None] - weights[..., None, :]
    place = torch.arange(length, device=scores.device)
    first, second = torch.minimum(place[:, None], place), torch.maximum(place[:, None], place)
    # Change of position k's normaliser if the two documents are swapped.
    gain = torch.where(place[:, None] < place, difference, -difference)
    between = (place > first[..., None]) & (place <= second[..., None])
    swapped = tails[..., None, None, :] + gain[..., None]
    tiny = torch.finfo(scores.dtype).tiny
    logs = tails.clamp(min=tiny).log()[..., None, None, :] - swapped.clamp(min=tiny).log()
    return torch.sigmoid((logs * (between & mask[..., None, None, :])).sum(-1))


def pair_weights(scores: Tensor, mask: Tensor) -> Tensor:
    """``(..., L, L)`` weights of all pairs: the sigmoid's derivative at the score difference, times the bias ratio.

    As published, gradients do not pass through `position_bias_ratio`. Zero on the diagonal and at padding.
    """
    preferred = torch.sigmoid(scores[..., :, None] - scores[..., None, :])
    ratio = position_bias_ratio(scores.detach(), mask)
    others = ~torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
    return preferred * (1 - preferred) * ratio * (mask[..., :, None] & mask[..., None, :] & others)


def laplacian(weights: Tensor) -> Tensor:
    """``diag(w 1) - w``, ``(..., L, L)``: maps clicks to the documents' coefficients."""
    return torch.diag_embed(weights.sum(-1)) - weights


def click_coefficients(weights: Tensor, clicks: Tensor) -> Tensor:
    """``(..., L)`` coefficients of the documents' score gradients, for clicks ``(..., L)`` in [0, 1]."""
    return weights.sum(-1) * clicks - (weights @ clicks[..., None]).squeeze(-1)
