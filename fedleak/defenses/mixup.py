"""Mixup: clients train on weighted means of two of their examples and of their labels."""

import dataclasses
import math

import torch
from torch import Tensor
from torch.nn import functional

from fedleak.core.errors import require
from fedleak.defenses.base import Defense, LocalStep


class Mixup(Defense):
    """Mixup: each step is on ``a x_i + (1 - a) x_p(i)`` and the same means of the one-hot labels.

    The share ``a ~ Beta(alpha, alpha)`` and the permutation p of the batch are drawn anew in every step, with the
    clients' secret key. A batch of one example stays as it is.

    Args:
        alpha: parameter of the distribution of a, >= 0; 0 for no mixing (published: 1 for CIFAR-10).

    References:
        [Zhang18], as it is known: the publication could not be read here.
    """

    def __init__(self, *, alpha: float) -> None:
        is_valid = math.isfinite(alpha) and alpha >= 0
        require(is_valid, "Mixup.alpha of 0 or more", f"{alpha:g}", "Published: 1 for CIFAR-10; 0 mixes nothing.")
        self.alpha = alpha

    def change_examples(self, step: LocalStep, generator: torch.Generator) -> LocalStep:
        if self.alpha == 0:
            return step
        # A share of Beta(alpha, alpha), as the ratio of two gamma variables.
        first = _gamma(self.alpha, generator)
        second = _gamma(self.alpha, generator)
        share = float(first / (first + second))
        # Real examples are permuted among themselves; padding is its own partner.
        real = step.mask.nonzero().flatten()
        partner = torch.arange(len(step.mask), device=real.device)
        partner[real] = real[torch.randperm(len(real), generator=generator).to(real.device)]
        labels = step.labels
        if labels.dim() == 1:
            labels = functional.one_hot(labels.long(), step.classes)
        labels = labels.to(step.inputs)
        return dataclasses.replace(
            step,
            inputs=share * step.inputs + (1 - share) * step.inputs[partner],
            labels=share * labels + (1 - share) * labels[partner],
        )


def _gamma(shape: float, generator: torch.Generator) -> Tensor:
    """A draw of the gamma distribution, above 0 (a small shape can give 0 by rounding)."""
    drawn = torch._standard_gamma(torch.tensor(shape, dtype=torch.float64), generator=generator)
    return drawn.clamp(min=torch.finfo(torch.float64).tiny)
