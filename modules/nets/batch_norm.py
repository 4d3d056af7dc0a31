"""Batch norm of federated clients: the statistics are those of the batch at hand, and never leave it."""

import torch
from torch import Tensor, nn


class BatchNorm(nn.Module):
    """Normalises by the mean and variance of the real examples of the batch, in training and afterwards.

    There are no running statistics: only scale and shift are parameters, are sent, and enter the delta. Of a padded
    batch only the examples in `mask` count.

    Args:
        channels: size of dimension 1.
        eps: what keeps the denominator from zero.
    """

    mask: Tensor | None

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.eps = eps
        self.mask = None

    def forward(self, values: Tensor) -> Tensor:
        """``(N, channels, ...)`` -> the same shape."""
        shape = (1, -1, *[1] * (values.dim() - 2))
        dims = [0, *range(2, values.dim())]
        if self.mask is None:
            mean, variance = values.mean(dims, keepdim=True), values.var(dims, correction=0, keepdim=True)
        else:
            real = self.mask.to(values.dtype).reshape(-1, *[1] * (values.dim() - 1))
            share = real / (real.sum().clamp(min=1) * values[0, 0].numel())
            mean = (values * share).sum(dims, keepdim=True)
            variance = ((values - mean).square() * share).sum(dims, keepdim=True)
        scaled = (values - mean) * torch.rsqrt(variance + self.eps)
        return scaled * self.weight.reshape(shape) + self.bias.reshape(shape)


def mask_batches(network: nn.Module, mask: Tensor | None) -> None:
    """Tells every batch norm of a network which examples of the next batch are real, None for all."""
    for layer in network.modules():
        if isinstance(layer, BatchNorm):
            layer.mask = mask
