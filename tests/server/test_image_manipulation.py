"""Likeness of images to their originals, by the formulas."""

import math

import pytest
import torch

from fedleak.server.image_manipulation import psnr, ssim
from tests.extractor_toys import images


def test_likeness_is_that_of_the_formulas() -> None:
    one, other = images(2)
    mean_square = float((one - other).square().mean())
    assert float(psnr(one[None], other[None])) == pytest.approx(-10 * math.log10(mean_square), rel=1e-5)
    assert float(ssim(one[None], one[None])) == pytest.approx(1)
    # A constant shift of a flat image leaves only the term of the means: (2ab + c) / (a^2 + b^2 + c), c = 0.01^2.
    flat, shifted = torch.full((1, 3, 16, 16), 0.4), torch.full((1, 3, 16, 16), 0.6)
    assert float(ssim(flat, shifted)) == pytest.approx((0.48 + 1e-4) / (0.52 + 1e-4), rel=1e-3)  # float32
    assert psnr(images(3), images(3) * 0.9).shape == ssim(images(3), images(3) * 0.9).shape == (3,)
