"""Similarity of images to their originals, per image (RAIFLE, appendix B), by torchmetrics.

References:
    Z. Wang, A. Bovik, H. Sheikh and E. Simoncelli, "Image Quality Assessment: From Error Visibility to Structural
    Similarity", IEEE Transactions on Image Processing, 2004.
"""

from torch import Tensor
from torchmetrics.functional.image import peak_signal_noise_ratio, structural_similarity_index_measure


def ssim(images: Tensor, originals: Tensor) -> Tensor:
    """``(N,)`` structural similarity of images ``(N, 3, h, w)`` in [0, 1], 1 for equal images."""
    found = structural_similarity_index_measure(images, originals, reduction="none", data_range=1.0)
    assert isinstance(found, Tensor)
    return found.reshape(len(images))


def psnr(images: Tensor, originals: Tensor) -> Tensor:
    """``(N,)`` peak signal-to-noise ratio in dB of images ``(N, 3, h, w)`` in [0, 1]; infinite for equal images."""
    return peak_signal_noise_ratio(images, originals, reduction="none", data_range=1.0, dim=(1, 2, 3))
