"""The grid of 8-bit pixels: which vectors lie on it, and grids of fewer levels on which images lie."""

import torch
from torch import Tensor

LEVELS = 255
"""Steps of a pixel in [0, 1] of 8 bits."""
_CHANCE = 1e-12
"""Largest probability with which a combination of records may look like a record."""
LEAST_DISTANCE = 1e-3
"""Distance from the grid, in levels, below which rounding of the numbers hides the true one."""
_MOST_DISTANCE = 0.25
"""Distance from the grid, in levels, from which a number is none of the grid."""
_LEAST_SHARE = 0.25
"""Least share of the images from which it is seen on which grid of levels images are."""


def on_grid(points: Tensor, errors: Tensor | None = None) -> Tensor:
    """``(M,)`` bool, whether points ``(M, D)`` are records: every number on the grid of 8-bit pixels in [0, 1].

    A combination of records would be so near the grid with probability 1e-12. A record of one colour only looks like a
    failure and is refused.

    Args:
        points: of which each number is in [0, 1] if it is a pixel.
        errors: ``(M, D)`` bounds on the numbers' errors, in levels; what is nearer to the grid is so by chance.
    """
    levels = points * LEVELS
    apart = (levels - levels.round()).abs()
    distance = apart.amax(1)
    # A number is within d of a whole one by chance with probability 2d, where d counts what its error allows at least.
    allowed = distance.clamp(min=LEAST_DISTANCE)[:, None].expand_as(levels)
    if errors is not None:
        allowed = allowed.maximum(errors)
    # Black and white say nothing: many combinations are black where all images are.
    is_grey = (levels > 0.5) & (levels < LEVELS - 0.5)
    chance = (2 * allowed).clamp(max=1).log().mul(is_grey).sum(1).exp()
    is_in_range = (levels.amin(1) > -_MOST_DISTANCE) & (levels.amax(1) < LEVELS + _MOST_DISTANCE)
    return is_in_range & (distance < _MOST_DISTANCE) & (chance < _CHANCE) & is_grey.any(1)


def common_levels(images: Tensor) -> Tensor:
    """``(256,)`` bool, the coarsest grid of grey levels on which at least a quarter of images ``(M, D)`` lie.

    Grids are levels at equal steps, and equal parts of the way from black to white, rounded; with at most half of the
    256 levels. A mixture with shares that are parts of q is on the grid of 8-bit pixels only if its images differ by
    multiples of q levels at every pixel, so that they are on a grid of step q, and the mixture is not, but for images
    that even differ by multiples of its square.

    Args:
        images: uint8.
    """
    numbers = images.long()
    grids = list[Tensor]()
    for parts in range(1, (LEVELS + 1) // 2):
        grids.append((torch.arange(parts + 1) * LEVELS / parts).round().long())
    for step in range(2, (LEVELS + 1) // 2):
        # The remainder that most images share, of those of their lightest pixels.
        remainders = (numbers.amax(1) % step).bincount(minlength=1)
        grids.append(torch.arange(int(remainders.argmax()), LEVELS + 1, step))
    all_levels = torch.ones(LEVELS + 1, dtype=torch.bool)
    # The coarsest grid first.
    for grid in sorted(grids, key=len):
        allowed = torch.zeros_like(all_levels).index_fill(0, grid, True)
        allowed[[0, LEVELS]] = True  # black and white, where the levels of others have a remainder
        images_on_grid = int(allowed[numbers].all(1).sum())
        if images_on_grid and images_on_grid >= _LEAST_SHARE * len(images):
            return allowed
    return all_levels


def as_levels(points: Tensor) -> Tensor:
    """Uint8 levels of values in [0, 1], rounded."""
    return (points.double() * LEVELS).round().clamp(0, LEVELS).to(torch.uint8)


def as_records(levels: Tensor) -> Tensor:
    """``(2, D)`` float64 values of 8-bit pixels ``(D,)`` as networks get them: exact, and rounded to float32."""
    return torch.stack([levels.double() / LEVELS, (levels.float() / LEVELS).double()])
