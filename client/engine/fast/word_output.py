"""Cross-entropy over a vocabulary from hidden states, with its gradient computed in the same pass."""

from typing import Any

import torch
from torch import Tensor

_ROWS = 128
"""Number of positions processed at once, so that their logits fit in the processor's cache."""


def word_loss(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of a linear layer's logits, without storing all of them.

    Args:
        hidden: ``(N, H)``.
        weight: ``(V, H)`` of the layer.
        bias: ``(V,)``.
        targets: ``(N,)`` int64 in [0, V).

    Returns:
        Scalar that is differentiable once; zero for N = 0.
    """
    loss: Tensor = _WordLoss.apply(hidden, weight, bias, targets)
    return loss


class _WordLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        loss, gradients = word_loss_gradients(hidden, weight, bias, targets)
        ctx.save_for_backward(*gradients)
        return loss

    @staticmethod
    def backward(ctx: Any, *signal: Tensor) -> tuple[Tensor | None, ...]:
        of_hidden, of_weight, of_bias = ctx.saved_tensors
        return of_hidden * signal[0], of_weight * signal[0], of_bias * signal[0], None


def word_loss_gradients(
    hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """`word_loss` with its gradients by hidden states, weight and bias."""
    share = 1 / max(len(hidden), 1)
    of_hidden, of_weight, of_bias = torch.empty_like(hidden), torch.zeros_like(weight), torch.zeros_like(bias)
    loss = hidden.new_zeros(())
    for start in range(0, len(hidden), _ROWS):
        rows = slice(start, start + _ROWS)
        slope = torch.softmax(torch.addmm(bias, hidden[rows], weight.mT), dim=1)
        own = targets[rows, None]
        # Clamping keeps the loss of a word with probability zero finite.
        loss -= slope.gather(1, own).clamp(min=torch.finfo(slope.dtype).tiny).log().sum()
        slope.scatter_add_(1, own, -torch.ones_like(slope[:, :1])).mul_(share)
        torch.mm(slope, weight, out=of_hidden[rows])
        of_weight.addmm_(slope.mT, hidden[rows])
        of_bias += slope.sum(0)
    return loss * share, (of_hidden, of_weight, of_bias)
