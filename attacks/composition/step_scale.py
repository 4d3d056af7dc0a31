"""Sum of a client's step sizes: known from its learner, or fitted so that class counts are nearly whole numbers."""

import torch
from torch import Tensor

from fedleak.client.auxiliary_images import Auxiliary
from fedleak.client.last_layer import output_layer
from fedleak.client.network import ClassifierAlgorithm
from fedleak.client.simulated_clients import draw_examples, mean_clip_factor, random_compositions
from fedleak.core.largest_remainders import largest_remainders
from fedleak.core.view import RoundView

SCALES = 400
"""Scales tried where the step size is unknown, up to `_LARGEST` times the smallest possible."""
_LARGEST = 8.0
_CLEAR = 0.25
"""Share of the usual distance from whole numbers below which a scale is taken for the true one."""
_SIMULATED = 8
"""Simulated clients that give the expected factor of a clip."""
_AT_CLIP = 1e-4
"""Relative distance of a norm below its clip within which the clip may have bound, in float32."""
_TINY = 1e-30


def step_scale(view: RoundView, image_pool: Auxiliary | None, *, noisy: bool, generator: torch.Generator) -> Tensor:
    """``(V,)`` sum of the step sizes times the factor of the clip; NaN where it is unknown."""
    learner = view.algorithm
    unknown = torch.full((view.victims,), torch.nan, dtype=torch.float64)
    if not isinstance(learner, ClassifierAlgorithm):
        return unknown
    rates = learner.step_sums(view.example_counts)
    if rates is None:  # steps of Adam have a size that follows from the gradients, and so has a clipped example
        return unknown
    bias = f"{output_layer(view)}.bias"
    if view.clip(bias) is None or (noisy and image_pool is None):
        return rates
    if not noisy:
        return _unknown_where_clipped(view, bias, rates)
    # Noise hides whether the clip bound: its expected factor is the mean one of simulated clients.
    assert image_pool is not None
    sizes = view.example_counts[torch.arange(_SIMULATED) % view.victims]
    compositions = random_compositions(_SIMULATED, len(image_pool.by_class), generator=generator)
    examples = draw_examples(image_pool, largest_remainders(compositions, sizes), generator=generator)
    images = (image_pool.images, image_pool.labels)
    return rates * mean_clip_factor(view, bias, images, examples, generator=generator)


def _unknown_where_clipped(view: RoundView, bias: str, rates: Tensor) -> Tensor:
    """``(V,)`` rates, NaN where a clip bound an update without noise: the last clip that binds leaves its norm."""
    clips = [release for release in view.releases if release.clip is not None]
    # Parameters that are clipped together with the bias.
    joint = set()
    for release in clips:
        if bias in release.parameters:
            joint |= {*release.parameters}
    # Norms are taken a little larger, so that one that equals its clip exceeds it.
    squares = {}
    for name, delta in view.deltas.items():
        squares[name] = delta.flatten(1).double().square().sum(1) / (1 - _AT_CLIP) ** 2
    for release in clips:
        if not joint & {*release.parameters}:
            continue
        factors = release.clip_factors(squares)
        if factors is not None:
            rates = rates.where(factors == 1, torch.nan)
    return rates


def fitting_scale(guess: Tensor, bias: Tensor, sizes: Tensor, scale: Tensor) -> Tensor:
    """``(V,)`` step size s where it is known, otherwise the one that puts ``N (p + b / s)`` nearest to whole numbers.

    p is the ``guess (V, K)`` of mean predictions, b the change of the ``bias (V, K)``, N are ``sizes (V,)``; ``scale
    (V,)`` is NaN where s is unknown.
    """
    missing = scale.isnan()
    if not bool(missing.any()):
        return scale
    guess = guess[missing]
    bias = bias[missing]
    sizes = sizes[missing]
    # Counts are at least 0: p_c + b_c / s >= 0 for every class, so s >= -b_c / p_c.
    least = (-bias / guess.clamp(min=1e-12)).amax(1).clamp(min=_TINY)
    tried = torch.logspace(0, 1, SCALES, base=_LARGEST, dtype=torch.float64) * least[:, None]
    counts = sizes[:, None, None] * (guess[:, None] + bias[:, None] / tried[..., None])
    off = (counts - counts.round()).square().sum(2)
    # The best one must stand out; without one, the smallest possible scale is taken.
    best, best_number = off.min(1)
    stands_out = best < _CLEAR * off.median(1).values
    fitted = torch.where(stands_out, tried.gather(1, best_number[:, None]).squeeze(1), least)
    return scale.masked_scatter(missing, fitted)
