"""Batch norm with batch statistics only, for federated clients.

Running statistics are not trained parameters, so a delta would not contain them. Batch statistics are a choice of this
project, because the papers do not say what their clients send.

References:
    [Ioffe15].
    [Andreux20] (local statistics, shared scale and shift).
"""

import torch
from torch import Tensor, nn


class BatchNorm(nn.Module):
    """Normalisation by the mean and variance of the batch, in training and evaluation.

    Only scale and shift are parameters and part of the delta. In a padded batch only the examples in `mask` count.

    Args:
        channels: size of dimension 1.
        eps: term added to the variance.
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
            mean = values.mean(dims, keepdim=True)
            variance = values.var(dims, correction=0, keepdim=True)
        else:
            of_examples = (-1, *[1] * (values.dim() - 1))
            real = self.mask.to(values.dtype).reshape(of_examples)
            # Mean and variance over the real examples of the batch and all positions of a channel.
            positions = values[0, 0].numel()
            share = real / (real.sum().clamp(min=1) * positions)
            mean = (values * share).sum(dims, keepdim=True)
            variance = ((values - mean).square() * share).sum(dims, keepdim=True)
        scaled = (values - mean) * torch.rsqrt(variance + self.eps)
        return scaled * self.weight.reshape(shape) + self.bias.reshape(shape)


def with_batch_statistics(network: nn.Module) -> nn.Module:
    """A network with `BatchNorm` in place of the batch norms of torch, which keep running statistics.

    Local training normalises by the batch in both; torch's would count the padding of an incomplete batch as examples.

    Args:
        network: changed in place, unless it is a batch norm itself; names and values of the parameters stay.
    """
    if isinstance(network, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d) and network.affine:
        replacement = BatchNorm(network.num_features, network.eps)
        replacement.weight = network.weight
        replacement.bias = network.bias
        return replacement
    for name, child in list(network.named_children()):
        setattr(network, name, with_batch_statistics(child))
    return network


def mask_batches(network: nn.Module, mask: Tensor | None) -> None:
    """Sets the mask of real examples of the next batch in every batch norm of a network, None for all."""
    for layer in network.modules():
        if isinstance(layer, BatchNorm):
            layer.mask = mask
