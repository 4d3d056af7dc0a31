"""False-positive rates at which ROC curves are kept."""

import numpy as np
from numpy.typing import NDArray

POINTS = 101
"""Number of the rates, from 0 to 1."""


def false_positive_rates() -> NDArray[np.float32]:
    """``(POINTS,)`` the rates, equal to the last bit to those of `torch.linspace`, which counts from both ends."""
    step = float(np.float32(1 / (POINTS - 1)))
    index = np.arange(POINTS, dtype=np.float64)  # as long numbers: torch rounds each rate once
    from_0 = step * index
    from_1 = 1 - step * (POINTS - 1 - index)
    return np.where(index < POINTS // 2, from_0, from_1).astype(np.float32)
