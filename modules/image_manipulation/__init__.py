"""Images changed by a malicious server before it sends them."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from modules.image_manipulation.base import ImageManipulation as ImageManipulation
    from modules.image_manipulation.fast_gradient_sign import FastGradientSign as FastGradientSign
    from modules.image_manipulation.indirect_manipulation import FeatureNoise as FeatureNoise
    from modules.image_manipulation.indirect_manipulation import PixelSearch as PixelSearch

__all__ = exports(__name__)
