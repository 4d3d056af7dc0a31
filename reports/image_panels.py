"""Images in the report: originals, what was made of them, and the difference."""

from matplotlib.figure import Figure
from torch import Tensor

from reports.drawing import svg

_MAGNIFIED = 8


def image_panels(originals: Tensor, sent: Tensor) -> str:
    """A column for each image: the original, the manipulated one, and their difference around grey, eight times.

    Args:
        originals: ``(N, 3, h, w)`` uint8.
        sent: likewise.
    """
    difference = (sent.float() - originals.float()) * _MAGNIFIED / 255 + 0.5
    rows = {"original": originals / 255, "sent": sent / 255, "difference": difference.clamp(0, 1)}
    figure = Figure(figsize=(1.6 * len(originals), 1.6 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), len(originals), squeeze=False)
    for line, (name, images) in zip(panels, rows.items(), strict=True):
        for axes, image in zip(line, images, strict=True):
            axes.imshow(image.permute(1, 2, 0).numpy(), interpolation="nearest")
            axes.set(xticks=[], yticks=[])
        line[0].set_ylabel(name)
    return svg(figure)
