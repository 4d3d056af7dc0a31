"""Attacks on rankers of images, which score items one by one: which items did a client vote for?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.attacks.images.affine_inversion import AffineInversion as AffineInversion
    from fedleak.attacks.images.pointwise_matching import PointwiseMatching as PointwiseMatching

__all__ = exports(__name__)
