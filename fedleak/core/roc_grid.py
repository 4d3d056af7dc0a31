"""False-positive rates at which ROC curves are kept."""

import numpy as np
from numpy.typing import NDArray

POINTS = 101
"""Number of the rates, from 0 to 1."""


def false_positive_rates() -> NDArray[np.float32]:
    """``(POINTS,)`` the rates, equal to the last bit to those of `torch.linspace`, which counts from both ends."""
    step = float(np.float32(1 / (POINTS - 1)))
    place = np.arange(POINTS, dtype=np.float64)  # as long numbers: torch rounds each rate once
    return np.where(place < POINTS // 2, step * place, 1 - step * (POINTS - 1 - place)).astype(np.float32)
