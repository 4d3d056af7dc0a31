"""Images whose features approach a target: within their bounds, from files of eight bits, and from where it stopped."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedleak.client.feature_extractor import Crop, FeatureExtractor, Transform
from fedleak.core.errors import InputError
from fedleak.server.fast_gradient_sign import FastGradientSign
from fedleak.server.feature_noise import FeatureNoise, PixelSearch, manipulate, partition_of, partitioned_noise
from fedleak.server.image_manipulation import psnr, ssim
from tests.extractor_toys import images, toy
from tests.places import ROOT


def targets(count: int = 6) -> Tensor:
    """Features that some images have: those of others, darker."""
    found: Tensor = toy()(0.6 * images(count, seed=1))
    return found


def gap(extractor: FeatureExtractor, pixels: Tensor) -> Tensor:
    gaps: Tensor = (extractor(pixels) - targets(len(pixels))).square().mean(1)
    return gaps


def test_features_approach_their_targets_within_valid_pixels() -> None:
    extractor, before = toy(), images()
    after = manipulate(extractor, before, targets(), PixelSearch(steps=80, learning_rate=0.05))
    assert float(gap(extractor, before).mean() / gap(extractor, after).mean()) > 5
    assert 0 <= float(after.min()) <= float(after.max()) <= 1


def test_the_best_image_is_kept_and_more_steps_are_never_worse() -> None:
    extractor, before = toy(), images()
    wild = [PixelSearch(steps=steps, learning_rate=0.8) for steps in (1, 4, 12)]
    gaps = [gap(extractor, manipulate(extractor, before, targets(), search)) for search in wild]
    assert bool((gaps[0] <= gap(extractor, before) + 1e-6).all())
    assert bool((gaps[2] <= gaps[1] + 1e-6).all())


def test_no_pixel_leaves_its_budget() -> None:
    search = PixelSearch(steps=40, learning_rate=0.05, budget=8 / 255)
    after = manipulate(toy(), images(), targets(), search)
    change = float((after - images()).abs().max())
    assert 7 / 255 < change <= 8 / 255 + 1e-6


@pytest.mark.parametrize("likeness", ["ssim", "psnr"])
def test_likeness_is_kept_at_the_features_expense(likeness: str) -> None:
    extractor, before = toy(), images()
    measure = ssim if likeness == "ssim" else psnr
    free = manipulate(extractor, before, targets(), PixelSearch(steps=40, learning_rate=0.05))
    likely = PixelSearch(steps=40, learning_rate=0.05, likeness=likeness, likeness_weight=0.3)  # type: ignore[arg-type]
    kept = manipulate(extractor, before, targets(), likely)
    assert float(measure(kept, before).mean()) > float(measure(free, before).mean())
    assert float(gap(extractor, kept).mean()) > float(gap(extractor, free).mean())


def test_an_images_result_does_not_depend_on_its_batch() -> None:
    extractor, search = toy(), PixelSearch(steps=10, learning_rate=0.05)
    together = manipulate(extractor, images(), targets(), search)
    alone = manipulate(extractor, images()[2:3], targets()[2:3], search)
    torch.testing.assert_close(together[2:3], alone, rtol=1e-4, atol=1e-5)


def test_who_is_near_enough_is_left_alone() -> None:
    extractor = toy()
    found = manipulate(extractor, images(), extractor(images()), PixelSearch(steps=5, enough=1e-6))
    torch.testing.assert_close(found, images())


def test_targets_are_rectified_noise_in_one_part() -> None:
    part = partition_of(200, 2)
    drawn = partitioned_noise(part, 51, partitions=2, scale=4.0, generator=torch.Generator().manual_seed(0))
    assert part.tolist() == [0] * 100 + [1] * 100
    assert float(drawn.min()) == 0
    assert not bool(drawn[:100, 26:].any())
    assert not bool(drawn[100:, :26].any())
    inside = drawn[:100, :26]
    assert float((inside == 0).double().mean()) == pytest.approx(0.5, abs=0.03)
    assert float(inside.square().mean()) == pytest.approx(8, rel=0.06)
    whole = partitioned_noise(part * 0, 51, partitions=1, scale=1.0, generator=torch.Generator())
    assert float((whole > 0).double().mean()) == pytest.approx(0.5, abs=0.03)
    with pytest.raises(ValueError, match="partitions"):
        partitioned_noise(part, 51, partitions=52, scale=1.0, generator=torch.Generator())


class Published(nn.Module):
    """The network of the arrays that the authors' code made."""

    def __init__(self, given: dict[str, Tensor]) -> None:
        super().__init__()
        layers = [nn.Conv2d(3, 6, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
        self.whole = nn.Sequential(nn.Sequential(*layers), nn.Linear(24, 5))
        self.whole.load_state_dict({n.removeprefix("net."): v for n, v in given.items() if n.startswith("net.")})

    def forward(self, images: Tensor) -> Tensor:
        said: Tensor = self.whole(images)
        return said


def test_manipulations_of_the_authors_code() -> None:
    stored = np.load(ROOT / "tests" / "golden" / "raifle_images.npz")
    given = {name: torch.from_numpy(stored[name]) for name in stored.files if name != "provenance"}
    extractor = FeatureExtractor(Published(given), transform=Transform(Crop(8, 8)), name="published")
    pixels, step = given["pixels"], 0.01 / 0.229
    for case in ("long", "early"):  # as many steps as asked for, and one, after which the features are near enough
        search = PixelSearch(steps=40, learning_rate=0.01, variant="as-published-code")
        found = manipulate(extractor, pixels, given[f"search.{case}.targets"], search)
        expected = extractor.restore(given[f"search.{case}.images"])
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3 * step)
    published = FastGradientSign(epsilon=0.1, variant="as-published-code")
    found = published.perturb(extractor, pixels, targets=None, labels=given["labels"])
    torch.testing.assert_close(found, extractor.restore(given["fgsm.images"]))


def test_the_variants_of_the_search_differ() -> None:
    """With a mean over the batch Adam's epsilon damps steps: visible where gradients are as small as it."""
    extractor, pixels = toy(), images()
    aims = extractor(pixels) + 1e-6
    ours, theirs = (
        manipulate(extractor, pixels, aims, PixelSearch(steps=1, learning_rate=0.01, enough=0.0, variant=variant))
        for variant in ("corrected", "as-published-code")
    )
    moved = [float((found - pixels).abs().mean()) for found in (ours, theirs)]
    assert moved[1] != pytest.approx(moved[0], rel=0.1)


def test_targets_depend_on_the_images_number_alone() -> None:
    def targets_of(*numbers: int) -> Tensor:
        return FeatureNoise().targets(torch.tensor(numbers), 10, partitions=2, seed=0)

    assert torch.equal(targets_of(3, 8)[1], targets_of(8)[0])
    assert bool((targets_of(8)[0, 5:] == 0).all())
    assert bool((targets_of(3)[0, :5] == 0).all())


@pytest.mark.parametrize(
    "options", [{"steps": 0}, {"learning_rate": 0.0}, {"likeness": "mse"}, {"budget": 0.0}, {"likeness_weight": -1.0}]
)
def test_impossible_searches_are_refused(options: dict[str, object]) -> None:
    with pytest.raises((InputError, ValueError), match=next(iter(options))):
        PixelSearch(**options)  # type: ignore[arg-type]
