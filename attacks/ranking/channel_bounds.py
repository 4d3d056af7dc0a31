"""Bounds on the bits of a client's clicks that any attack can infer from an update."""

import math

import torch
from torch import Tensor


def capacity_bits(*, clip: float, noise_scale: float, dimensions: int) -> float:
    """Capacity of a clipped update under Gaussian noise: ``d/2 log2(1 + (clip/sigma)^2 / d)`` bits.

    No attack learns more of the clicks, on average over clients (Shannon 1949; the energy of an update is at most
    ``clip^2``, spread over ``d`` parallel Gaussian channels).

    Args:
        clip: L2 norm to which the update is clipped.
        noise_scale: standard deviation of the noise on each number, more than 0.
        dimensions: numbers in an update.
    """
    return dimensions / 2 * math.log2(1 + (clip / noise_scale) ** 2 / dimensions)


def entropy_bits(log_law: Tensor) -> Tensor:
    """Entropy of each client's clicks, in bits, if its lists are clicked independently.

    Args:
        log_law: ``(V, Q, 2^L)`` log probability of every pattern of every list, as of `priors.log_prior`; lists
            that send nothing have ``-inf`` throughout.

    Returns:
        ``(V,)``.
    """
    law = log_law.double().exp()
    nats: Tensor = torch.special.entr(law).sum((1, 2))
    return nats / math.log(2)
