"""Epsilon of composed Gaussian mechanisms, without a library that a site would have to install."""

import math


def gaussian_epsilon(precision: float, delta: float) -> float:
    """Smallest epsilon of mechanisms whose ``(sensitivity / sigma)^2`` add up to `precision`.

    They compose into one with ``mu^2`` of that sum, of which ``delta(epsilon) = Phi(mu / 2 - epsilon / mu) -
    exp(epsilon) Phi(-mu / 2 - epsilon / mu)``; solved by bisection, from above.

    Args:
        precision: sum over the mechanisms; infinite where one adds no noise.
        delta: probability with which the guarantee may fail.

    References:
        [Dong22], corollary 3.3; [Balle18a], theorem 8.
    """
    if precision == 0 or not math.isfinite(precision):
        return precision
    mu = math.sqrt(precision)
    low = 0.0
    high = mu * mu / 2 + mu * 40  # at 40 standard deviations no delta above 1e-300 is left
    if _delta(low, mu) <= delta:
        return 0.0
    # Delta falls in epsilon. 200 halvings are more than doubles can tell apart, and the upper end keeps the guarantee.
    for _ in range(200):
        middle = (low + high) / 2
        if _delta(middle, mu) > delta:
            low = middle
        else:
            high = middle
    return high


def _delta(epsilon: float, mu: float) -> float:
    """``Phi(mu / 2 - epsilon / mu) - exp(epsilon) Phi(-mu / 2 - epsilon / mu)``, without loss of digits."""
    # Both terms as logarithms a and b: exp(a) - exp(b) = -exp(a) (exp(b - a) - 1), where exp(epsilon) may overflow.
    first = _log_cdf(mu / 2 - epsilon / mu)
    second = epsilon + _log_cdf(-mu / 2 - epsilon / mu)
    return math.exp(first) * -math.expm1(min(second - first, 0.0))


def _log_cdf(x: float) -> float:
    """Logarithm of the standard normal distribution function."""
    # erfc is above 0 in double precision down to -38 standard deviations.
    if x > -30:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    # Phi(x) = phi(x) / -x (1 - 1 / x^2 + 3 / x^4 - ...), an asymptotic series; its error is below 15 / x^6.
    square = x * x
    return -square / 2 - math.log(-x * math.sqrt(2 * math.pi)) + math.log1p(-1 / square + 3 / square**2)
