"""How far simulated updates are from received ones, and how rough the images are that were simulated."""

import torch
from torch import Tensor
from torch.nn import functional

TINY = 1e-30
"""Smallest squared norm by which anything is divided."""


def cosine_gap(simulated: dict[str, Tensor], received: dict[str, Tensor]) -> Tensor:
    """``1 - <a, b> / (|a| |b|)`` of updates ``(B, *shape)``, ``(B,)``."""
    products = [(simulated[name] * value).flatten(1).sum(1) for name, value in received.items()]
    product = torch.stack(products).sum(0)
    names = list(received)
    lengths = (squared_norms(simulated, names) * squared_norms(received, names)).clamp(min=TINY).sqrt()
    return 1 - product / lengths


def euclidean_gap(simulated: dict[str, Tensor], received: dict[str, Tensor]) -> Tensor:
    """``|a - b|^2 / 2`` of updates ``(B, *shape)``, ``(B,)``."""
    gaps = {name: simulated[name] - value for name, value in received.items()}
    return squared_norms(gaps, list(received)) / 2


def total_variation(images: Tensor, mask: Tensor) -> Tensor:
    """``(B,)`` mean over pixels of ``|dx| + |dy|`` of the images ``(B, M, channels, height, width)`` of a mask.

    Outside the image all pixels are zero, which is middle grey for standardised images.
    """
    to_the_right = functional.pad(images, (0, 1)).diff(dim=-1).abs()
    below = functional.pad(images, (0, 0, 0, 1)).diff(dim=-2).abs()
    variations: Tensor = (to_the_right + below).flatten(2).mean(2) * mask
    return variations.sum(1) / mask.sum(1).clamp(min=1)


def squared_norms(values: dict[str, Tensor], names: list[str]) -> Tensor:
    """``(B,)`` squared norm of each client's update ``(B, *shape)``, over the parameters of these names."""
    squares = [values[name].square().flatten(1).sum(1) for name in names]
    return torch.stack(squares).sum(0)
