"""Bodies of image classifiers by name: from images to features.

References:
    [Dai24], table II.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor, nn

from fedleak.client.nets.batch_norm import BatchNorm
from fedleak.client.nets.category_embeddings import CategoryEmbeddings
from fedleak.client.nets.dropout import Dropout
from fedleak.core.errors import require

if TYPE_CHECKING:
    from fedleak.client.nets.classifiers import ClassifierOptions

Shape = tuple[int, int, int]
"""Channels, height and width of an image."""
Body = tuple[nn.Module, int]
"""A network from images to features, and the number of features."""
_Builder = Callable[["ClassifierOptions", Shape], Body]
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky-relu": nn.LeakyReLU,
    "gelu": nn.GELU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
}


class Standardise(nn.Module):
    """Pixels minus a mean, over a standard deviation.

    Args:
        mean: the mean.
        deviation: the standard deviation.
    """

    def __init__(self, mean: float, deviation: float) -> None:
        super().__init__()
        self.mean = mean
        self.deviation = deviation

    def forward(self, images: Tensor) -> Tensor:
        return (images - self.mean) / self.deviation


def classifier_body(network: "ClassifierOptions", shape: Shape) -> Body:
    """Body of a classifier for images of a shape (channels, height, width), and its number of features."""
    body, features = _BODIES[network.name](network, shape)
    if network.standardise is None:
        return body, features
    return nn.Sequential(Standardise(*network.standardise), body), features


def _activation(network: "ClassifierOptions") -> nn.Module:
    if network.activation == "leaky-relu":
        return nn.LeakyReLU(network.slope)
    return ACTIVATIONS[network.activation]()


def _two_convolutions(network: "ClassifierOptions", shape: Shape) -> Body:
    channels = network.channels
    layers = [
        nn.Conv2d(shape[0], channels, 3, stride=2, padding=1),
        _activation(network),
        nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1),
        _activation(network),
        nn.MaxPool2d(2),
    ]
    # Two strides of two leave a quarter of each side, rounded up; the pooling halves it, rounded down.
    height, width = (-(-size // 4) // 2 for size in shape[1:])
    return _with_head(layers, 2 * channels * height * width, network, shape)


def _modules(number: int) -> "_Builder":
    def build(network: "ClassifierOptions", shape: Shape) -> Body:
        layers: list[nn.Module] = []
        before = shape[0]
        after = network.channels
        for depth in range(number):
            after = network.channels * min(2**depth, 4)  # doubled by each further convolution, up to four times
            layers += [nn.Conv2d(before, after, 3, padding=1), _activation(network), nn.MaxPool2d(2)]
            before = after
        pixels = (shape[1] // 2**number) * (shape[2] // 2**number)
        return _with_head(layers, after * pixels, network, shape)

    return build


def _with_head(layers: list[nn.Module], flat: int, network: "ClassifierOptions", shape: Shape) -> Body:
    require(
        flat >= 1, f"images large enough for {network.name}", f"shape {shape}", "Set network.name: two-convolutions."
    )
    head: list[nn.Module] = [nn.Flatten(), nn.Linear(flat, network.hidden), _activation(network)]
    if network.norm != "none":
        # After flatten and linear layer comes the activation; the norm goes before or after it.
        position = 2 if network.norm == "before-activation" else 3
        head.insert(position, BatchNorm(network.hidden))
    return nn.Sequential(*layers, *head), network.hidden


def _mlp(network: "ClassifierOptions", shape: Shape) -> Body:
    require(network.norm == "none", "norm: none with an mlp", network.norm, "Set network.norm: none.")
    layers: list[nn.Module] = [nn.Flatten()]
    inputs = math.prod(shape)
    if network.embedding is not None:
        categorical = list[int]()
        for start, size in network.categories:
            categorical += range(start, start + size)
        distinct = len(set(categorical)) == len(categorical) and all(0 <= index < inputs for index in categorical)
        way_out = "Give the first input and the number of inputs of each category."
        require(distinct, f"network.categories among {inputs} inputs, each once", network.categories, way_out)
        embeddings = CategoryEmbeddings(inputs, network.categories, network.embedding)
        layers.append(embeddings)
        inputs = embeddings.features
    for before in [inputs, *[network.hidden] * (network.hidden_layers - 1)]:
        layers += [nn.Linear(before, network.hidden), _activation(network)]
    return nn.Sequential(*layers), network.hidden


def _resnet18(_: "ClassifierOptions", shape: Shape) -> Body:
    from torchvision.models.resnet import BasicBlock, ResNet  # heavy, and attacks import this module

    body = ResNet(BasicBlock, [2, 2, 2, 2], norm_layer=BatchNorm)
    # For small images: a first convolution of three pixels without stride, and no pooling after it.
    body.conv1 = nn.Conv2d(shape[0], 64, 3, padding=1, bias=False)
    body.maxpool = nn.Identity()
    features = body.fc.in_features
    body.fc = nn.Identity()
    return body, features


def _vgg16(network: "ClassifierOptions", shape: Shape) -> Body:
    from torchvision.models.vgg import cfgs, make_layers

    features = make_layers(cfgs["D"])
    features[0] = nn.Conv2d(shape[0], 64, 3, padding=1)
    pooled = [features, nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    if network.head == "small":
        return nn.Sequential(*pooled, nn.Linear(512, 512), nn.ReLU()), 512
    head = [
        nn.Linear(512, 4096),
        nn.ReLU(),
        Dropout(0.5),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        Dropout(0.5),
    ]
    return nn.Sequential(*pooled, *head), 4096


_BODIES: dict[str, "_Builder"] = {
    "two-convolutions": _two_convolutions,
    "three-modules": _modules(3),
    "four-modules": _modules(4),
    "resnet18": _resnet18,
    "vgg16": _vgg16,
    "mlp": _mlp,
}
