"""Separate matching finds images of a leaky toy, and nothing in another client's update."""

import dataclasses

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction.gradient_matching import decoupled
from fedleak.attacks.reconstruction.likeness import likeness, nearest
from fedleak.attacks.reconstruction.separate_matching import SeparatedImages, SeparateMatching, UnrelatedSeparate
from fedleak.core.errors import ViewError
from tests.attacks.runs import of_noise, run, with_noise
from tests.convolution_toys import ONE_STEP, toy

FEW = SeparateMatching(max_iter=100, total_variation=0.002)


def psnr(found: SeparatedImages, images: Tensor) -> float:
    matched = [nearest(*pair) for pair in zip(found.records, images, strict=True)]
    return float(likeness(matched, list(images))["psnr"].mean())


@pytest.mark.integration
def test_images_are_found_in_one_step_and_not_in_another_update() -> None:
    view, images = toy()
    found = run(FEW, view, SeparatedImages)
    assert found.separated.tolist() == [1, 1]
    assert psnr(found, images) > 25
    others = run(UnrelatedSeparate(max_iter=100, total_variation=0.002), view, SeparatedImages)
    assert psnr(others, images) < 14
    assert psnr(others, images.roll(1, 0)) > 25
    assert torch.equal(run(FEW, decoupled(view, "update"), SeparatedImages).records, others.records)


@pytest.mark.integration
def test_clients_whose_images_cannot_be_separated_get_gradient_matching() -> None:
    for view in (toy(hidden=1)[0], of_noise(toy()[0])):
        found = run(SeparateMatching(max_iter=3), view, SeparatedImages)
        assert found.separated.tolist() == [0, 0]
        assert found.count.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (lambda: toy(convolutions=False)[0], "convolutions"),
        (lambda: toy(dataclasses.replace(ONE_STEP, epochs=2))[0], "one step"),
        (lambda: toy(dataclasses.replace(ONE_STEP, optimizer="adam"))[0], "one step"),
        (lambda: with_noise(toy()[0], 0.1, 0), "add noise"),
    ],
)
def test_other_networks_steps_and_noise_are_refused(view: object, reason: str) -> None:
    assert callable(view)
    with pytest.raises(ViewError, match=reason):
        run(FEW, view(), SeparatedImages)
