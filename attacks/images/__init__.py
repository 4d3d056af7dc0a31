"""Attacks on rankers of images, which score items one by one: which items did a client vote for?"""

from attacks.images.affine_inversion import AffineInversion
from attacks.images.pointwise_matching import PointwiseMatching

__all__ = ["AffineInversion", "PointwiseMatching"]
