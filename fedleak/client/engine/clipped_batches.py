"""Gradients of whole batches, clipped to a norm in every step of a client.

References:
    [Pascanu13].
"""

import torch

from fedleak.client.engine.fast.gradients import Parameters

_TINY = 1e-6
"""Added to a norm before it divides, as in `torch.nn.utils.clip_grad_norm_`."""


@torch.no_grad()
def clipped_to_norm(gradients: Parameters, most: float | None, *, stacked: bool) -> Parameters:
    """Gradients whose norm over all parameters is at most some number.

    Args:
        gradients: ``shape`` each, or ``(C, *shape)`` of stacked clients, each of which has a norm of its own.
        most: largest norm; None for gradients as they are.
        stacked: whether the gradients are those of stacked clients.

    Example:
        >>> import torch
        >>> clipped_to_norm({"weight": torch.tensor([3.0, 4.0])}, 1.0, stacked=False)["weight"]
        tensor([0.6000, 0.8000])
    """
    if most is None:
        return gradients
    squares = []
    for value in gradients.values():
        vectors = value.reshape(1, -1)
        if stacked:
            vectors = value.reshape(len(value), -1)
        squares.append(vectors.square().sum(1))
    norms = torch.stack(squares).sum(0).sqrt()
    factors = (most / (norms + _TINY)).clamp(max=1)
    clipped = {}
    for name, value in gradients.items():
        if stacked:
            clipped[name] = value * factors.reshape(-1, *[1] * (value.dim() - 1))
        else:
            clipped[name] = value * factors[0]
    return clipped
