"""Attacks on rankers of images, which score items one by one: which items did a client vote for?"""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from attacks.images.affine_inversion import AffineInversion as AffineInversion
    from attacks.images.pointwise_matching import PointwiseMatching as PointwiseMatching

__all__ = exports(__name__)
