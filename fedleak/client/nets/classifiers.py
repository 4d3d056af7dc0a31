"""Image classifiers by name: a body that computes features, and a linear layer from features to logits.

References:
    Dai, Zhou and Fu, "Decaf: Data Distribution Decompose Attack against Federated Learning", 2024, arXiv:2405.15316,
    table II.
    "Gradient Inversion via LT Codes", 2026, section IV and github.com/SaeedShariati/Gradient-Inversion-via-LT-Codes:
    the weights of ``weights: normal``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from fedleak.client.nets.batch_norm import BatchNorm
from fedleak.client.nets.bottleneck import Bottleneck
from fedleak.client.nets.category_embeddings import CategoryEmbeddings
from fedleak.client.nets.dropout import Dropout
from fedleak.core.errors import require
from fedleak.core.ranges import NonNegativeFloat, PositiveInt, UnitInterval

NetworkName = Literal["two-convolutions", "three-modules", "four-modules", "resnet18", "vgg16", "mlp"]
Activation = Literal["relu", "leaky-relu", "gelu", "sigmoid", "tanh"]
Norm = Literal["none", "before-activation", "after-activation"]
Head = Literal["small", "standard"]
Weights = Literal["uniform", "normal"]

_HIDDEN_DEVIATION = 0.5
OUTPUT = "output"
"""Name of the last layer of every classifier."""
_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky-relu": nn.LeakyReLU,
    "gelu": nn.GELU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
}


MOST_LAYERS = 256
"""Layers of a network. Each is built before sizes can be counted, so that a million of them would never end."""


def check_layers(number: int) -> None:
    """Refuses more layers than `MOST_LAYERS`."""
    require(number <= MOST_LAYERS, f"at most {MOST_LAYERS} layers", number, "Take fewer.")


@dataclass(frozen=True, kw_only=True)
class ClassifierOptions:
    """Options of a classifier.

    Attributes:
        name: architecture of Decaf's table II: ``two-convolutions`` and a pooling, ``three-modules`` or
            ``four-modules`` of a convolution and a pooling, each with two linear layers; or ``resnet18`` (with batch
            norm) and ``vgg16`` (without), both for small images; or ``mlp``, only linear layers.
        hidden: number of features of the first three architectures, which the paper does not give; units of each
            hidden layer of ``mlp``.
        hidden_layers: number of hidden layers of ``mlp``.
        channels: channels of their first convolution; each further convolution doubles them, up to four times.
        activation: activation of the first three and of ``mlp``.
        slope: slope of ``leaky-relu`` below zero.
        head: layers of ``vgg16`` after the convolutions: ``small``, 512 features; ``standard``, two layers of 4,096
            with dropout of a half, as in the publication. An image of 32 pixels leaves one pixel of 512 channels, which
            torchvision's network repeats 49 times; here it is used once.
        norm: position of the batch norm of the features of the first three.
        dropout: share of the features that training drops.
        bottleneck: length of the latent vector of a variational bottleneck before the last layer (PRECODE, see
            `fedleak.client.nets.bottleneck`); None for no bottleneck.
        divergence: weight of its divergence in the loss.
        weights: initial weights: ``uniform``, torch's default; ``normal``, as in the experiments on LT codes: hidden
            linear layers N(0, 0.5^2), the output layer uniform as of Glorot and Bengio, biases 0.
        embedding: numbers of the vector by which ``mlp`` replaces each category of a row; None for one-hot inputs.
        categories: first input and number of inputs of each of these categories, ``[[1, 3], [4, 15]]``.
        standardise: mean that the network subtracts from pixels in [0, 1], and standard deviation by which it then
            divides them; None for neither.
    """

    name: NetworkName = "two-convolutions"
    hidden: PositiveInt = 64
    hidden_layers: PositiveInt = 1
    channels: PositiveInt = 8
    activation: Activation = "relu"
    slope: UnitInterval = 0.01
    head: Head = "small"
    norm: Norm = "none"
    dropout: float = 0.0
    bottleneck: PositiveInt | None = None
    divergence: NonNegativeFloat = 0.001
    weights: Weights = "uniform"
    embedding: PositiveInt | None = None
    categories: Sequence[tuple[int, int]] = ()
    standardise: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_layers(self.hidden_layers)
        require(
            self.standardise is None or self.standardise[1] > 0,
            "network.standardise of a mean and a standard deviation above 0",
            self.standardise,
            "For MNIST, give [0.1307, 0.3081].",
        )
        require(
            min(self.hidden, self.channels) >= 1 and self.activation in _ACTIVATIONS,
            f"network.hidden and channels above 0 and an activation among {', '.join(_ACTIVATIONS)}",
            f"hidden {self.hidden}, channels {self.channels}, {self.activation}",
            "Set model.network to such values.",
        )
        require(
            (self.embedding is None) == (not self.categories) and (self.embedding is None or self.name == "mlp"),
            "network.embedding and network.categories together, with name: mlp",
            f"embedding {self.embedding}, categories {self.categories} and {self.name}",
            "Give both, or neither for one-hot inputs.",
        )
        require(0 <= self.dropout < 1, "network.dropout in [0, 1)", self.dropout, "Set 0 for no dropout.")
        right = (self.bottleneck is None or self.bottleneck >= 1) and math.isfinite(self.divergence)
        require(
            right and self.divergence >= 0,
            "network.bottleneck of 1 or more, or null, and divergence of 0 or more",
            f"{self.bottleneck}, {self.divergence}",
            "PRECODE has 256 and 0.001.",
        )


class Classifier(nn.Module):
    """Network of a body, dropout, perhaps a variational bottleneck, and a linear layer.

    Args:
        body: maps ``(N, channels, height, width)`` to features ``(N, F)``.
        features: number F of features.
        classes: number K of classes.
        network: options; of them, dropout and bottleneck.
    """

    is_chain = True

    def __init__(self, body: nn.Module, features: int, classes: int, network: ClassifierOptions) -> None:
        super().__init__()
        self.body = body
        self.dropout = Dropout(network.dropout)
        latent = network.bottleneck
        self.bottleneck = nn.Identity() if latent is None else Bottleneck(features, latent, network.divergence)
        self.output = nn.Linear(features, classes)

    def forward(self, images: Tensor) -> Tensor:
        """``(N, channels, height, width)`` -> logits ``(N, K)``."""
        logits: Tensor = self.output(self.bottleneck(self.dropout(self.body(images))))
        return logits


def build_classifier(
    network: ClassifierOptions, *, image_shape: tuple[int, int, int], classes: int, generator: torch.Generator
) -> Classifier:
    """Classifier with initial weights from one generator.

    Args:
        network: options.
        image_shape: channels, height and width.
        classes: number of classes.
        generator: source of the initial weights.

    Raises:
        InputError: the images are too small for the poolings.
    """
    body, features = _body(network, image_shape)
    made = Classifier(body, features, classes, network)
    draw_layers(made, generator, normal=network.weights == "normal")
    return made


def classifier_shapes(
    network: ClassifierOptions, *, image_shape: tuple[int, int, int], classes: int
) -> dict[str, tuple[int, ...]]:
    """Shapes of the parameters of `build_classifier` by name, computed without allocating them."""
    with torch.device("meta"):
        body, features = _body(network, image_shape)
        made = Classifier(body, features, classes, network)
    return {name: tuple(value.shape) for name, value in made.named_parameters()}


class Standardise(nn.Module):
    """Pixels minus a mean, over a standard deviation.

    Args:
        mean: the mean.
        deviation: the standard deviation.
    """

    def __init__(self, mean: float, deviation: float) -> None:
        super().__init__()
        self.mean, self.deviation = mean, deviation

    def forward(self, images: Tensor) -> Tensor:
        return (images - self.mean) / self.deviation


def _body(network: ClassifierOptions, shape: tuple[int, int, int]) -> tuple[nn.Module, int]:
    """Body, and number of features."""
    body, features = _BODIES[network.name](network, shape)
    return body if network.standardise is None else nn.Sequential(Standardise(*network.standardise), body), features


@torch.no_grad()
def draw_layers(network: nn.Module, generator: torch.Generator, *, normal: bool = False) -> None:
    """Draws linear layers and convolutions from torch's default distribution, with one generator.

    Args:
        network: the network; a linear layer itself is possible.
        generator: source of the weights.
        normal: replace those of linear layers, see `ClassifierOptions.weights`.
    """
    for name, layer in network.named_modules():
        if not isinstance(layer, nn.Linear | nn.Conv2d):
            continue
        bound = layer.weight[0].numel() ** -0.5
        layer.weight.uniform_(-bound, bound, generator=generator)
        if layer.bias is not None:
            layer.bias.uniform_(-bound, bound, generator=generator)
        if normal and isinstance(layer, nn.Linear):
            if name == OUTPUT:
                nn.init.xavier_uniform_(layer.weight, generator=generator)
            else:
                layer.weight.normal_(0, _HIDDEN_DEVIATION, generator=generator)
            layer.bias.zero_()


def _activation(network: ClassifierOptions) -> nn.Module:
    return nn.LeakyReLU(network.slope) if network.activation == "leaky-relu" else _ACTIVATIONS[network.activation]()


def _two_convolutions(network: ClassifierOptions, shape: tuple[int, int, int]) -> tuple[nn.Module, int]:
    channels = network.channels
    layers = [
        *(nn.Conv2d(shape[0], channels, 3, stride=2, padding=1), _activation(network)),
        *(nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1), _activation(network), nn.MaxPool2d(2)),
    ]
    height, width = (-(-size // 4) // 2 for size in shape[1:])
    return _with_head(layers, 2 * channels * height * width, network, shape)


def _modules(number: int) -> Callable[[ClassifierOptions, tuple[int, int, int]], tuple[nn.Module, int]]:
    def build(network: ClassifierOptions, shape: tuple[int, int, int]) -> tuple[nn.Module, int]:
        layers: list[nn.Module] = []
        before, after = shape[0], network.channels
        for place in range(number):
            after = network.channels * min(2**place, 4)
            layers += [nn.Conv2d(before, after, 3, padding=1), _activation(network), nn.MaxPool2d(2)]
            before = after
        return _with_head(layers, after * (shape[1] // 2**number) * (shape[2] // 2**number), network, shape)

    return build


def _with_head(
    layers: list[nn.Module], flat: int, network: ClassifierOptions, shape: tuple[int, int, int]
) -> tuple[nn.Module, int]:
    require(
        flat >= 1, f"images large enough for {network.name}", f"shape {shape}", "Set network.name: two-convolutions."
    )
    head: list[nn.Module] = [nn.Flatten(), nn.Linear(flat, network.hidden), _activation(network)]
    if network.norm != "none":
        head.insert(2 if network.norm == "before-activation" else 3, BatchNorm(network.hidden))
    return nn.Sequential(*layers, *head), network.hidden


def _mlp(network: ClassifierOptions, shape: tuple[int, int, int]) -> tuple[nn.Module, int]:
    require(network.norm == "none", "norm: none with an mlp", network.norm, "Set network.norm: none.")
    layers: list[nn.Module] = [nn.Flatten()]
    inputs = math.prod(shape)
    if network.embedding is not None:
        places = [place for start, size in network.categories for place in range(start, start + size)]
        right = len(set(places)) == len(places) and all(0 <= place < inputs for place in places)
        way_out = "Give the first input and the number of inputs of each category."
        require(right, f"network.categories among {inputs} inputs, each once", network.categories, way_out)
        embeddings = CategoryEmbeddings(inputs, network.categories, network.embedding)
        layers.append(embeddings)
        inputs = embeddings.features
    for before in [inputs, *[network.hidden] * (network.hidden_layers - 1)]:
        layers += [nn.Linear(before, network.hidden), _activation(network)]
    return nn.Sequential(*layers), network.hidden


def _resnet18(_: ClassifierOptions, shape: tuple[int, int, int]) -> tuple[nn.Module, int]:
    from torchvision.models.resnet import BasicBlock, ResNet  # heavy, and attacks import this module

    body = ResNet(BasicBlock, [2, 2, 2, 2], norm_layer=BatchNorm)
    body.conv1 = nn.Conv2d(shape[0], 64, 3, padding=1, bias=False)
    body.maxpool = nn.Identity()
    features = body.fc.in_features
    body.fc = nn.Identity()
    return body, features


def _vgg16(network: ClassifierOptions, shape: tuple[int, int, int]) -> tuple[nn.Module, int]:
    from torchvision.models.vgg import cfgs, make_layers

    features = make_layers(cfgs["D"])
    features[0] = nn.Conv2d(shape[0], 64, 3, padding=1)
    pooled = [features, nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    if network.head == "small":
        return nn.Sequential(*pooled, nn.Linear(512, 512), nn.ReLU()), 512
    head = [nn.Linear(512, 4096), nn.ReLU(), Dropout(0.5), nn.Linear(4096, 4096), nn.ReLU(), Dropout(0.5)]
    return nn.Sequential(*pooled, *head), 4096


_BODIES: dict[str, Callable[[ClassifierOptions, tuple[int, int, int]], tuple[nn.Module, int]]] = {
    "two-convolutions": _two_convolutions,
    "three-modules": _modules(3),
    "four-modules": _modules(4),
    "resnet18": _resnet18,
    "vgg16": _vgg16,
    "mlp": _mlp,
}
