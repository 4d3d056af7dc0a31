"""The fast gradient sign method by hand, on pixels that stay valid."""

import torch
from torch import Tensor, nn

from fedleak.client.feature_extractor import FeatureExtractor
from fedleak.server.fast_gradient_sign import FastGradientSign
from tests.extractor_toys import images, toy


def perturbed(
    extractor: FeatureExtractor, pixels: Tensor, labels: Tensor | None = None, *, epsilon: float = 0.1
) -> Tensor:
    return FastGradientSign(epsilon=epsilon).perturb(extractor, pixels, targets=None, labels=labels)


def test_fast_gradient_sign_is_one_step_along_the_sign() -> None:
    extractor = toy()
    pixels = (0.2 + 0.6 * images()).requires_grad_()
    logits = extractor.logits(pixels)
    nn.functional.cross_entropy(logits, logits.argmax(1), reduction="sum").backward()  # type: ignore[no-untyped-call]
    assert pixels.grad is not None
    expected = (pixels + 0.1 * pixels.grad.sign()).detach()
    found = perturbed(extractor, pixels.detach())
    torch.testing.assert_close(found, expected)
    others = (logits.argmax(1) + 1) % 4
    told = perturbed(extractor, pixels.detach(), others.where(torch.arange(6) < 3, -1))
    assert torch.equal(told[3:], found[3:])
    assert not torch.allclose(told[:3], found[:3])
    bounded = perturbed(extractor, images(), epsilon=0.5)
    assert 0 <= float(bounded.min()) <= float(bounded.max()) <= 1
