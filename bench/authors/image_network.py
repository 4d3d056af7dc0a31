"""The network of the contest on images, for both sides; needs only torch."""

import torch
from torch import Tensor, nn

SHAPE, CLASSES = (3, 32, 32), 10
MEAN, DEVIATION = 0.5, 0.25
"""Pixels in [0, 1] are standardised by them while they are searched."""


def image_network() -> nn.Sequential:
    """LeNet of "Deep Leakage from Gradients" with ReLU, for pixels in [0, 1]."""
    return nn.Sequential(
        *(nn.Conv2d(SHAPE[0], 12, 5, padding=2, stride=2), nn.ReLU()),
        *(nn.Conv2d(12, 12, 5, padding=2, stride=2), nn.ReLU()),
        *(nn.Conv2d(12, 12, 5, padding=2, stride=1), nn.ReLU()),
        nn.Flatten(),
        nn.Linear(768, CLASSES),
    )


class Standardised(nn.Module):
    """The pixels of standardised images."""

    def forward(self, images: Tensor) -> Tensor:
        """Maps standardised images to pixels."""
        return torch.add(MEAN, images, alpha=DEVIATION)
