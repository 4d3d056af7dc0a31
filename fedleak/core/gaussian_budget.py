"""Epsilon of Gaussian mechanisms and of their composition."""

import functools
import math


@functools.lru_cache(maxsize=4096)
def gaussian_epsilon(precision: float, delta: float) -> float:
    """Epsilon of mechanisms whose ``(sensitivity / sigma)^2`` add up to `precision`.

    Gaussian mechanisms compose exactly into one (Dong, Roth and Su 2022, corollary 3.3), whose epsilon dp-accounting
    computes (Balle and Wang 2018, equation 6).

    Args:
        precision: sum over the mechanisms; infinite where one adds no noise.
        delta: probability with which the guarantee may fail.
    """
    # No loss at all, and no noise at all.
    if precision == 0 or not math.isfinite(precision):
        return precision
    from dp_accounting import get_epsilon_gaussian  # slow to import

    # The accountant takes sigma for a sensitivity of 1.
    return float(get_epsilon_gaussian(precision**-0.5, delta))


def composed_epsilon(noise_multipliers: tuple[float, ...], rounds: int, delta: float) -> float:
    """Epsilon of `rounds` updates, each with one Gaussian mechanism per noise multiplier.

    Args:
        noise_multipliers: ``sigma / sensitivity`` of each mechanism; epsilon is infinite without any.
        rounds: number of updates.
        delta: probability with which the guarantee may fail.
    """
    if rounds == 0:
        return 0.0
    # Precisions (sensitivity / sigma)^2 of Gaussian mechanisms add up; without a mechanism nothing limits epsilon.
    precision = rounds * sum(z**-2 for z in noise_multipliers)
    return gaussian_epsilon(precision or math.inf, delta)


@functools.lru_cache(maxsize=4096)
def declared_precision(epsilon: float, delta: float) -> float:
    """``(sensitivity / sigma)^2`` of the Gaussian mechanism that is (epsilon, delta)-private and no more."""
    from dp_accounting import get_sigma_gaussian  # slow to import

    sigma = float(get_sigma_gaussian(epsilon, delta))
    return 1 / (sigma * sigma)
