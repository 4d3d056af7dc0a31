"""Labelled images of the server's own, from which it simulates clients that train a classifier."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedleak.core.errors import ViewError
from fedleak.core.view import RoundView

IMAGES, LABELS = "images", "labels"
"""Names of the images and of their classes among the auxiliary data of a recording."""
AUXILIARY = (f"auxiliary:{IMAGES}", f"auxiliary:{LABELS}")
"""Both as needs of a threat model."""


@dataclass(frozen=True)
class Auxiliary:
    """The adversary's ``images (M, channels, height, width)`` with ``labels (M,)``.

    ``by_class (K, k)`` are the indices of each class's images, padded with -1.
    """

    images: Tensor
    labels: Tensor
    by_class: Tensor

    @property
    def per_class(self) -> Tensor:
        """``(K,)`` number of images of each class."""
        return (self.by_class >= 0).sum(1)


def auxiliary(view: RoundView, classes: int, most: int | None = None) -> Auxiliary:
    """The auxiliary images of a view, at most the first `most` of each class.

    Raises:
        ViewError: a class has no image, or a label is not below `classes`.
    """
    images = view.auxiliary[IMAGES]
    labels = view.auxiliary[LABELS]
    valid = len(images) == len(labels)
    if valid and len(labels):
        valid = 0 <= int(labels.min()) <= int(labels.max()) < classes
    if not valid:
        raise ViewError(f"expected auxiliary images with a label below {classes} each, got others")
    numbers = [(labels == c).nonzero().flatten()[:most] for c in range(classes)]
    missing = [c for c, of_class in enumerate(numbers) if not len(of_class)]
    if missing:
        raise ViewError(f"expected auxiliary images of every class, got none of class {missing[0]}")
    return Auxiliary(images, labels, pad_sequence(numbers, batch_first=True, padding_value=-1))
