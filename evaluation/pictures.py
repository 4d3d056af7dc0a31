"""Figure of images and their reconstructions, side by side."""

from collections.abc import Sequence

import torch

from attacks.estimates import Reconstruction
from evaluation.drawing import Drawing

_PREFIX = "pictures-"


def side_by_side(label: str, shown: Reconstruction) -> Drawing:
    """True images in the first row, their reconstructions by an attack in the second.

    Args:
        label: label of the attack.
        shown: the images.
    """
    from matplotlib.figure import Figure  # slow to import

    count = len(shown.originals)
    figure = Figure(figsize=(1.3 * count + 0.6, 2.8), layout="constrained")
    grid = figure.subplots(2, count, squeeze=False)
    for row, images in zip(grid, (shown.originals, shown.found), strict=True):
        for axes, image in zip(row, images, strict=True):
            pixels = image.detach().float().clamp(0, 1).permute(1, 2, 0)
            pixels = pixels.expand(-1, -1, 3) if pixels.shape[2] == 1 else pixels[..., :3]
            axes.imshow(torch.as_tensor(pixels).numpy(), interpolation="nearest")
            axes.set_xticks([])
            axes.set_yticks([])
    grid[0, 0].set_ylabel("true")
    grid[1, 0].set_ylabel("reconstructed")
    caption = f"Training images of the first clients and what {label} makes of their updates."
    return Drawing(caption, figure, name=f"{_PREFIX}{label}")


def first_of_each(drawings: Sequence[Drawing]) -> list[Drawing]:
    """Drawings, of each attack's pictures only the first."""
    kept: dict[object, Drawing] = {}
    for place, drawing in enumerate(drawings):
        kept.setdefault(drawing.name if drawing.name.startswith(_PREFIX) else place, drawing)
    return list(kept.values())
