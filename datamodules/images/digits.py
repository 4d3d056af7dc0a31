"""Handwritten digits of scikit-learn: real images that need no download."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

from fedleak.datamodules.images.base import ClassificationDataModule, LabelledImages, split_test

_LEVELS = 16


class Digits(ClassificationDataModule):
    """Optical recognition of handwritten digits, 1,797 grey 8 x 8 images, about 180 per class, a fifth for the test.

    Files: none; scikit-learn contains them.

    References:
        [Alpaydin98].
    """

    name = "digits"
    folders = (name,)
    class_names: Sequence[str] = tuple(str(digit) for digit in range(10))
    image_shape = (1, 8, 8)

    def __init__(self, *, auxiliary_per_class: int = 20, **kwargs: Any) -> None:
        super().__init__(auxiliary_per_class=auxiliary_per_class, **kwargs)

    def read_train(self) -> LabelledImages:
        return self._read[0]

    def read_test(self) -> LabelledImages:
        return self._read[1]

    @functools.cached_property
    def _read(self) -> tuple[LabelledImages, LabelledImages]:
        values, labels = load_digits(return_X_y=True)
        # Grey levels from 0 to 16 become those of 8-bit images.
        images = np.rint(values.reshape(-1, *self.image_shape) * (255 / _LEVELS)).astype(np.uint8)
        digits = LabelledImages(torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)))
        return split_test(digits, class_names=self.class_names, fraction=0.2, seed=self.seed)
