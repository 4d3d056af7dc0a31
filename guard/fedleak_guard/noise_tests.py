"""Tests of the declared Gaussian noise in a client's own message, which hold for every update.

Let a message be ``m = u + n`` with any update u and noise n of standard deviation s on each of d numbers. Then
``|m|^2 / s^2`` is stochastically at least a chi-squared variable of d degrees of freedom, and the number of ``|m_i|``
of at most t is stochastically at most a binomial one with probability ``erf(t / (s sqrt 2))`` each (Anderson 1955). A
message whose norm is smaller, or which has more small numbers, than these with a probability of 1e-9 has less noise.

References:
    [Laurent00], lemma 1, for the tails of chi-squared variables. Those of binomial ones are Chernoff's.
"""

import math
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np

from fedleak_guard.message import Message, parts_of
from fedleak_guard.policy import DeclaredPrivacy
from fedleak_recorder.arrays import Array, as_array

LOG_ALPHA = 9 * math.log(10)
"""Minus the logarithm of the probability of a false finding of each test."""
_NEAR = 0.01, 0.1, 0.5
"""Sizes of small numbers that are counted, in standard deviations of the noise."""


COARSE = 0.1
"""Largest error of a number, over the declared noise, at which the tests still say something: they allow for it."""


class Tested(NamedTuple):
    """Outcome of the tests of a tensor.

    Attributes:
        ratio: root mean square of the numbers over the declared noise.
        reason: why there is less noise; empty if nothing shows it.
    """

    ratio: float
    reason: str


def least_noise(numbers: Array, declared: float, rounding: float) -> Tested:
    """Tests the numbers of a tensor for noise of the standard deviation `declared`.

    Args:
        numbers: noise, or an update with noise.
        declared: standard deviation.
        rounding: largest error of a number.
    """
    if rounding > COARSE * declared:
        ratio = math.sqrt(float(np.mean(np.square(numbers.astype(np.float64))))) / declared
        return Tested(ratio, f"numbers that are known to {rounding:.3g}, too coarse for noise of {declared:.3g}")
    count = numbers.size
    bounds = [size * declared for size in _NEAR]
    square_sum = 0.0
    near_counts = np.zeros(len(_NEAR))
    for part in parts_of(numbers):
        square_sum += float(np.dot(part, part))
        sizes = np.abs(part)
        near_counts += [np.count_nonzero(sizes <= bound) for bound in bounds]
    ratio = math.sqrt(square_sum / count) / declared
    # |m|^2 / s^2 is below d - 2 sqrt(d a) with probability exp(-a) at most (Laurent and Massart 2000, lemma 1). Errors
    # of rounding may have made the norm smaller by their own, which is sqrt(d) times the largest at most.
    least = count - 2 * math.sqrt(count * LOG_ALPHA)
    if (ratio + rounding / declared) ** 2 * count < least:
        return Tested(ratio, f"root mean square {ratio:.3g} of the declared")
    for bound, near_count in zip(bounds, near_counts, strict=True):
        # Probability that noise alone is that small, which an update can only lower: erf(t / (s sqrt 2)).
        share = math.erf((bound + rounding) / (declared * math.sqrt(2)))
        # A share q of d numbers, where p is expected, has probability exp(-d KL(q, p)) at most (Chernoff).
        if _chernoff(near_count / count, share) * count > LOG_ALPHA:
            return Tested(ratio, f"{near_count / count:.3g} of the numbers are below {bound:.3g}, expected {share:.3g}")
    return Tested(ratio, "")


def _chernoff(observed: float, share: float) -> float:
    """Relative entropy of two coins, 0 if `observed` is not above `share`."""
    if observed <= share:
        return 0.0
    divergence = observed * math.log(observed / share)
    if observed < 1:  # of 0 log 0 the limit is 0
        divergence += (1 - observed) * math.log((1 - observed) / (1 - share))
    return divergence


def private_tensors(message: Message, privacy: DeclaredPrivacy, *, before: bool = False) -> dict[str, Array]:
    """Changes of the tensors that are declared to be clipped and noised, as sent or before the noise."""
    changes = message.changes
    if before:
        changes = {}
        for name, value in (message.before_noise or {}).items():
            array = as_array(value, where=repr(name))
            if array.dtype.kind == "f":
                changes[name] = array
    private = {}
    for name, change in changes.items():
        if any(fnmatchcase(name, pattern) for pattern in privacy.tensors):
            private[name] = change
    return private


def rounding(message: Message) -> dict[str, float]:
    """Largest error of the changes of each tensor by the precision of the sent numbers; 0 of what is sent as a change.

    It is that of the tensor's largest number, so that a large number in one tensor excuses nothing in another.
    """
    errors = dict.fromkeys(message.changes, 0.0)
    if message.holds == "models":
        # A model's numbers are rounded to its own size, and the change is their small difference.
        for name in errors:
            largest = float(np.abs(message.tensors[name]).max(initial=0))
            errors[name] = _precision(message.dtypes[name]) * largest
    return errors


def _precision(dtype: str) -> float:
    """Distance of 1 to the next number of a type."""
    if dtype == "bfloat16":  # which NumPy does not have: 7 binary digits behind the point
        return 2.0**-7
    return float(np.finfo(dtype).eps)
