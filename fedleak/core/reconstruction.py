"""Images and what an attack makes of them, for a figure."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

    Images = Tensor | NDArray[np.float32]


@dataclass(frozen=True)
class Reconstruction:
    """Images ``(K, channels, height, width)`` in [0, 1] and the reconstruction `found` of each, for a figure.

    An attack gives tensors, a stored evaluation arrays.

    Example:
        >>> import torch
        >>> from fedleak import Reconstruction
        >>> pair = Reconstruction(originals=torch.ones(1, 1, 2, 2), found=torch.full((1, 1, 2, 2), 0.75))
        >>> float((pair.originals - pair.found).square().mean())
        0.0625
    """

    originals: "Images"
    found: "Images"

    def as_arrays(self) -> "Reconstruction":
        """The same images as arrays."""
        return Reconstruction(_array(self.originals), _array(self.found))


def _array(images: "Images") -> NDArray[np.float32]:
    if isinstance(images, np.ndarray):
        return images
    return np.asarray(images.detach().cpu(), dtype=np.float32)
