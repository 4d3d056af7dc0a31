"""Attacks on rankers of images, which score items one by one: which items did a client vote for?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.attacks.images.affine_inversion import AffineInversion as AffineInversion
    from fedleak.attacks.images.pointwise_matching import PointwiseMatching as PointwiseMatching
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "AffineInversion": "fedleak.attacks.images.affine_inversion",
            "PointwiseMatching": "fedleak.attacks.images.pointwise_matching",
        },
    )
