"""Image classifiers by name: a body that computes features, and a linear layer from features to logits.

References:
    [Dai24], table II.
    [LTCodes26], section IV and github.com/SaeedShariati/Gradient-Inversion-via-LT-Codes: the weights of ``weights:
    normal``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from fedleak.client.nets.bottleneck import Bottleneck
from fedleak.client.nets.classifier_bodies import ACTIVATIONS, classifier_body
from fedleak.client.nets.dropout import Dropout
from fedleak.core.errors import require
from fedleak.core.ranges import NonNegativeFloat, PositiveInt, UnitInterval

NetworkName = Literal["two-convolutions", "three-modules", "four-modules", "resnet18", "vgg16", "mlp"]
Activation = Literal["relu", "leaky-relu", "gelu", "sigmoid", "tanh"]
Norm = Literal["none", "before-activation", "after-activation"]
Head = Literal["small", "standard"]
Weights = Literal["uniform", "normal"]

_HIDDEN_DEVIATION = 0.5
"""Standard deviation of the weights of hidden layers with ``weights: normal``."""
OUTPUT = "output"
"""Name of the last layer of every classifier."""
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
            min(self.hidden, self.channels) >= 1 and self.activation in ACTIVATIONS,
            f"network.hidden and channels above 0 and an activation among {', '.join(ACTIVATIONS)}",
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
        valid_bottleneck = (self.bottleneck is None or self.bottleneck >= 1) and math.isfinite(self.divergence)
        require(
            valid_bottleneck and self.divergence >= 0,
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
        self.bottleneck: nn.Module = nn.Identity()
        if latent is not None:
            self.bottleneck = Bottleneck(features, latent, network.divergence)
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
    # Layers draw weights when they are made, from the generator that all of torch shares: these are drawn anew below.
    with torch.random.fork_rng(devices=[]):
        body, features = classifier_body(network, image_shape)
        classifier = Classifier(body, features, classes, network)
    draw_layers(classifier, generator, normal=network.weights == "normal")
    return classifier


def classifier_shapes(
    network: ClassifierOptions, *, image_shape: tuple[int, int, int], classes: int
) -> dict[str, tuple[int, ...]]:
    """Shapes of the parameters of `build_classifier` by name, computed without allocating them."""
    with torch.device("meta"):
        body, features = classifier_body(network, image_shape)
        classifier = Classifier(body, features, classes, network)
    return {name: tuple(value.shape) for name, value in classifier.named_parameters()}


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
        # torch's default: uniform within 1 / sqrt(number of inputs) of an output, weights and biases.
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
