"""Gaussian noise that the guard adds, from the randomness of the operating system.

Every number of noise takes 16 bytes of `os.urandom`, which is a cryptographic generator. Where an update is 0 its
message is the noise alone, and what was drawn says nothing of what is drawn next; a generator such as PCG64 makes no
such promise.

What holds against attacks on the floating-point numbers themselves (Mironov 2012): the clipped change is rounded
towards 0, so that its norm does not grow, and the noise to nearest, both to whole multiples of one step of about
``scale / 2**20``. Their sum is exact, and the numbers that can leave are the same whatever the update is. It is the sum
of the rounded change and of real Gaussian noise, rounded to the step: rounding afterwards, to the message's type too,
costs no privacy.

What does not hold: the noise is as Gaussian as Box and Muller's formula in double precision. It never exceeds 8.58
standard deviations (probability 1e-17 for a number), and the probability of a multiple is that of a real Gaussian to a
relative error of the order of 1e-9 within 6 deviations; the accountant's delta does not include these. Time is not
hidden: that of the checks depends on the update.

References:
    [Mironov12]; [Box58].
"""

import math
import os
from collections.abc import Mapping

import numpy as np

from fedleak_guard.message import norm_of
from fedleak_recorder.arrays import Array

_FINE = 20
"""Binary digits of the scale that the common step keeps."""
_AT_ONCE = 2**16
"""Numbers that are drawn at once, so that memory stays flat."""


def clipped_with_noise(changes: Mapping[str, Array], *, clip: float, scale: float) -> dict[str, Array]:
    """Changes clipped to an L2 norm, with Gaussian noise on each number.

    Args:
        changes: by name, finite.
        clip: largest L2 norm of all together.
        scale: standard deviation of the noise.
    """
    # 1e-300 stands for a norm of 0, upon which nothing is clipped.
    factor = min(1.0, clip / max(norm_of(changes), 1e-300))
    # A power of two: multiples of it are added and multiplied without rounding.
    step = 2.0 ** (math.floor(math.log2(scale)) - _FINE)
    noisy = {}
    for name, change in changes.items():
        clipped_steps = np.trunc(factor * change.astype(np.float64) / step)  # towards 0, so that no norm grows
        noise_steps = np.rint(standard_normal(change.size) * (scale / step)).reshape(change.shape)
        noisy[name] = (clipped_steps + noise_steps) * step
    return noisy


def standard_normal(count: int) -> Array:
    """``(count,)`` standard normal numbers from the system's randomness.

    Of the two numbers of Box and Muller the second is not used: far from 0, a pair lies on few circles.
    """
    parts = [_drawn(min(_AT_ONCE, count - start)) for start in range(0, count, _AT_ONCE)]
    return np.concatenate([np.empty(0), *parts])


def _drawn(count: int) -> Array:
    """``(count,)`` numbers by Box and Muller: sqrt(-2 ln u) cos(2 pi v) of two uniform numbers u and v."""
    words = np.frombuffer(os.urandom(16 * count), np.uint64).reshape(2, count)
    # The upper 53 bits of each word, as many as a double holds; u needs a number above 0, for its logarithm.
    radius = ((words[0] >> np.uint64(11)) + 1).astype(np.float64) * 2.0**-53
    angle = (words[1] >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return np.asarray(np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle))
