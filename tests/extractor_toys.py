"""A feature extractor of one layer, and images for it."""

import torch
from torch import Tensor, nn

from fedleak.client.feature_extractor import Crop, FeatureExtractor, Transform
from fedleak.datamodules.images.image_set import GeneratedImages

CROP = Crop(20, 16)


class Toy(nn.Module):
    """A small network that ends in rectified features and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 6, 5, stride=3)
        self.features, self.head = nn.Linear(96, 8), nn.Linear(8, 4)

    def forward(self, images: Tensor) -> Tensor:
        hidden = torch.relu(self.convolution(images)).flatten(1)
        said: Tensor = self.head(torch.relu(self.features(hidden)))
        return said


def toy() -> FeatureExtractor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = Toy()
        nn.init.constant_(network.features.bias, 0.4)  # on, so that gradients reach the pixels
        return FeatureExtractor(network, transform=Transform(CROP), name="toy")


def images(count: int = 6, seed: int = 0) -> Tensor:
    """Pixels in [0, 1]."""
    return GeneratedImages(count=count, size=24, seed=seed).pixels(range(count), CROP) / 255
