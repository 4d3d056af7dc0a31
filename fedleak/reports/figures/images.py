"""Images in rows: a client's images above their reconstructions, or originals above manipulated images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from fedleak.core.reconstruction import Reconstruction
from fedleak.reports.figures.figure_data import DrawnFigure

if TYPE_CHECKING:
    from torch import Tensor

    from fedleak.core.reconstruction import Images

_MAGNIFIED = 8
"""Factor of differences between images, which would be invisible."""


def reconstructions(label: str, shown: Reconstruction) -> DrawnFigure:
    """True images in the first row, their reconstructions by the attack with a label in the second."""
    caption = f"Training images of the first clients and what {label} makes of their updates."
    figure = Figure(figsize=(1.3 * len(shown.originals) + 0.6, 2.8), layout="constrained")
    _draw_rows(figure, {"true": shown.originals, "reconstructed": shown.found})
    return DrawnFigure(caption, figure=figure, name=f"pictures-{label}")


def manipulated_images(originals: Tensor, sent: Tensor, caption: str) -> DrawnFigure:
    """A column per image: the original, the manipulated image, and eight times their difference around grey.

    Both are ``(N, 3, h, w)`` uint8.
    """
    # Grey, 0.5, is no difference; brighter is more in the image that was sent.
    difference = (sent.float() - originals.float()) * _MAGNIFIED / 255 + 0.5
    figure = Figure(figsize=(1.6 * len(originals), 4.8), layout="constrained")
    _draw_rows(figure, {"original": originals / 255, "sent": sent / 255, "difference": difference})
    return DrawnFigure(caption, figure=figure, name="images")


def _draw_rows(figure: Figure, rows: Mapping[str, Images]) -> None:
    """Draws images ``(N, channels, height, width)`` in [0, 1], a named row each; one channel is grey."""
    panels = figure.subplots(len(rows), max(map(len, rows.values())), squeeze=False)
    for row_axes, (name, images) in zip(panels, rows.items(), strict=True):
        for axes, image in zip(row_axes, images, strict=True):
            # matplotlib has channels last, and three of them; a reconstruction may leave [0, 1].
            pixels = np.asarray(image, dtype=np.float32).clip(0, 1).transpose(1, 2, 0)
            if pixels.shape[2] == 1:
                pixels = pixels.repeat(3, axis=2)
            axes.imshow(pixels[..., :3], interpolation="nearest")
            axes.set(xticks=[], yticks=[])
        row_axes[0].set_ylabel(name)
