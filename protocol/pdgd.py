"""How much each pair of shown documents counts in PDGD, pairwise differentiable gradient descent.

The update of one query is ``sum_ij w_ij I_i (1 - I_j) (grad s_i - grad s_j)`` with symmetric ``w``, which is
(Oosterhuis and de Rijke 2018) ``sum_i c_i grad s_i`` with ``c = (diag(w 1) - w) I``: linear in the clicks.
"""

import torch
from torch import Tensor


def position_bias_ratio(scores: Tensor, mask: Tensor) -> Tensor:
    """How likely the ranking with two documents swapped is, beside both rankings: P(R*) / (P(R) + P(R*)).

    P is Plackett-Luce over the shown documents. A swap of positions i < j changes only the normalisers of positions
    i+1 to j, each by exp(s_i) - exp(s_j).

    Args:
        scores: ``(..., L)`` in displayed order.
        mask: ``(..., L)`` True for documents; padding comes last.

    Returns:
        ``(..., L, L)``, symmetric.
    """
    length = scores.shape[-1]
    largest = scores.masked_fill(~mask, -torch.inf).amax(-1, keepdim=True)
    weights = torch.exp(scores - largest.nan_to_num(neginf=0.0)) * mask
    tails = weights.flip(-1).cumsum(-1).flip(-1)
    difference = weights[..., :, None] - weights[..., None, :]
    place = torch.arange(length, device=scores.device)
    first, second = torch.minimum(place[:, None], place), torch.maximum(place[:, None], place)
    # What position k's normaliser gains when the later document of the pair gives way to the earlier one.
    gain = torch.where(place[:, None] < place, difference, -difference)
    between = (place > first[..., None]) & (place <= second[..., None])
    swapped = tails[..., None, None, :] + gain[..., None]
    tiny = torch.finfo(scores.dtype).tiny
    logs = tails.clamp(min=tiny).log()[..., None, None, :] - swapped.clamp(min=tiny).log()
    return torch.sigmoid((logs * (between & mask[..., None, None, :])).sum(-1))


def pair_weights(scores: Tensor, mask: Tensor) -> Tensor:
    """Weights of all pairs: the derivative of the sigmoid at the difference of scores, times the position-bias ratio.

    The ratio is a constant to the gradient, as published.

    Args:
        scores: ``(..., L)`` in displayed order.
        mask: ``(..., L)`` True for documents; padding comes last.

    Returns:
        ``(..., L, L)``, symmetric, zero on the diagonal and where either document is padding.
    """
    preferred = torch.sigmoid(scores[..., :, None] - scores[..., None, :])
    ratio = position_bias_ratio(scores.detach(), mask)
    others = ~torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
    return preferred * (1 - preferred) * ratio * (mask[..., :, None] & mask[..., None, :] & others)


def laplacian(weights: Tensor) -> Tensor:
    """``diag(w 1) - w``: the matrix that turns clicks into the documents' coefficients, ``(..., L, L)``."""
    return torch.diag_embed(weights.sum(-1)) - weights


def click_coefficients(weights: Tensor, clicks: Tensor) -> Tensor:
    """Coefficients ``(..., L)`` of the documents' score gradients, for clicks ``(..., L)`` in [0, 1]."""
    return weights.sum(-1) * clicks - (weights @ clicks[..., None]).squeeze(-1)
