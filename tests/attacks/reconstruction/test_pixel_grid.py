"""Which vectors are on the grid of 8-bit pixels by more than chance, and which levels most images have."""

import pytest
import torch

from fedleak.attacks.reconstruction.pixel_grid import common_levels, on_grid
from fedleak.core.seeding import generator_for

PIXELS = 40
HALF = 0.5


def test_coarse_numbers_are_near_the_grid_by_chance() -> None:
    """Quotients of whole numbers up to 15 are on the grid of 255 levels, as 255 is 15 times 17."""
    points = torch.randint(1, 15, (8, PIXELS), generator=generator_for(0, "coarse")).double() / 15
    assert on_grid(points).all()
    assert on_grid(points, torch.full_like(points, 0.01)).all()
    assert not on_grid(points, torch.full_like(points, HALF)).any()


@pytest.mark.parametrize("levels", [[0, 16, 32, 208, 240], [0, 17, 51, 255], [0, 32, 112, 128, 143], [2, 8, 30, 254]])
def test_levels_between_those_of_most_images_are_not_common(levels: list[int]) -> None:
    places = torch.randint(len(levels), (9, PIXELS), generator=generator_for(0, "levels"))
    images = torch.tensor(levels)[places]
    mixed = (images[:2].sum(0, keepdim=True) / 2).round().long()
    allowed = common_levels(torch.cat([images, mixed]).to(torch.uint8))
    assert allowed[images].all()
    assert not allowed[mixed].all()


def test_all_levels_are_common_in_images_of_8_bits() -> None:
    images = torch.randint(256, (9, PIXELS), generator=generator_for(0, "levels")).to(torch.uint8)
    assert common_levels(images).all()
    assert common_levels(images[:0]).all()
