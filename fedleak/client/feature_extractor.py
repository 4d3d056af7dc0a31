"""Public network by whose features clients rank images: the inputs of its last layer."""

from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor, nn

from fedleak.client.network import last_linear
from fedleak.core.errors import InputError, require

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's pixels, the default of most networks."""


@dataclass(frozen=True)
class Crop:
    """Resizing and centre crop of a network's images.

    Attributes:
        resize: length of the shorter side after resizing, in pixels.
        size: height and width of the centre crop.
        bicubic: cubic instead of linear interpolation; both are antialiased.

    Raises:
        InputError: the crop is larger than the resized image.
    """

    resize: int = 256
    size: int = 224
    bicubic: bool = False

    def __post_init__(self) -> None:
        require(
            1 <= self.size <= self.resize,
            "a crop of 1 pixel to the resized shorter side",
            f"{self.size} of {self.resize}",
            "ImageNet's usual sizes are 224 of 256.",
        )

    def of(self, image: Image.Image) -> Tensor:
        """The cropped image, ``(channels, size, size)`` uint8."""
        from torchvision.transforms import functional as transforms  # heavy, and attacks import this module

        mode = transforms.InterpolationMode.BICUBIC if self.bicubic else transforms.InterpolationMode.BILINEAR
        resized = transforms.resize(image, [self.resize], mode, antialias=True)
        cut: Tensor = transforms.pil_to_tensor(transforms.center_crop(resized, [self.size]))
        return cut


@dataclass(frozen=True)
class Transform:
    """Preprocessing of a network's images.

    Attributes:
        crop: resizing and crop.
        mean: mean of each channel of pixels in [0, 1].
        std: standard deviation of each channel.
    """

    crop: Crop
    mean: tuple[float, ...] = _MEAN
    std: tuple[float, ...] = _STD


class FeatureExtractor(nn.Module):
    """Frozen network in evaluation mode without its last linear layer.

    Args:
        network: the network; its last linear layer is removed.
        transform: preprocessing of its images.
        features: number of features after averaging neighbours, None for all.
        name: name for messages.

    Raises:
        InputError: the network does not end in a linear layer, or has fewer features.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, *, transform: Transform, features: int | None = None, name: str) -> None:
        super().__init__()
        self.transform = transform
        path, self.classifier = last_linear(network, name)
        replace_layer(network, path, nn.Identity())
        self.body = network
        self.register_buffer("mean", torch.tensor(transform.mean).reshape(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(transform.std).reshape(1, -1, 1, 1), persistent=False)
        self.requires_grad_(False)
        super().train(False)
        width = self._width(name)
        self.num_features = width if features is None else features
        require(
            1 <= self.num_features <= width, f"1 to {width} features of {name}", features, "Omit `features` for all."
        )

    def train(self, mode: bool = True) -> "FeatureExtractor":
        """Stays in evaluation mode, because features must not depend on the other images of a batch."""
        return self

    def normalise(self, pixels: Tensor) -> Tensor:
        """Normalised inputs of the network from pixels in [0, 1]."""
        return (pixels - self.mean) / self.std

    def restore(self, inputs: Tensor) -> Tensor:
        """Pixels in [0, 1] from normalised inputs."""
        return inputs * self.std + self.mean

    def of_inputs(self, inputs: Tensor) -> Tensor:
        """Features ``(N, F)`` of normalised images ``(N, 3, h, w)``."""
        features: Tensor = self.body(inputs)
        if self.num_features == self.classifier.in_features:
            return features
        return nn.functional.adaptive_avg_pool1d(features[:, None], self.num_features)[:, 0]

    def forward(self, pixels: Tensor) -> Tensor:
        """Features ``(N, F)`` of pixels ``(N, 3, h, w)`` in [0, 1]."""
        return self.of_inputs(self.normalise(pixels))

    def logits(self, pixels: Tensor) -> Tensor:
        """Logits of the whole network for pixels ``(N, 3, h, w)`` in [0, 1]."""
        logits: Tensor = self.classifier(self.body(self.normalise(pixels)))
        return logits

    def _width(self, name: str) -> int:
        size = self.transform.crop.size
        try:
            with torch.no_grad():
                features = self.body(torch.zeros(1, len(self.transform.mean), size, size))
        except RuntimeError as error:  # e.g. two heads whose outputs are averaged
            raise _no_classifier(name, f"a network that fails without its last layer: {error}") from error
        # Without its last layer, a network must give one vector an image, of the layer's inputs.
        shape = tuple(features.shape) if isinstance(features, Tensor) else ()
        if shape != (1, self.classifier.in_features):
            raise _no_classifier(
                name, f"a last layer of {self.classifier.in_features} inputs, but outputs {shape} without it"
            )
        return self.classifier.in_features


def replace_layer(network: nn.Module, path: str, layer: nn.Module) -> None:
    """Puts another layer at a path of a network."""
    parent, _, child = path.rpartition(".")
    setattr(network.get_submodule(parent), child, layer)


def _no_classifier(name: str, network: str) -> InputError:
    return InputError(
        expected=f"a linear layer at the end of {name}, whose inputs are its features",
        found=network,
        way_out="Name a classification network with its classifier.",
    )
