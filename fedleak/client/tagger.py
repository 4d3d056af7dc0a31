"""Clients that tag photographs (CNN-PIPA-FL and CNN-OI-FL).

References:
    [Orekondy18], section 5.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from fedleak.client.algorithm import Shapes
from fedleak.client.nets.batch_norm import BatchNorm
from fedleak.client.nets.classifiers import draw_layers
from fedleak.client.network import NetworkAlgorithm
from fedleak.core.errors import InputError, require
from fedleak.core.ranges import PositiveInt

HEAD = "classifier"
"""Name of the last layer in timm's MobileNets."""


@dataclass(frozen=True, kw_only=True)
class TaggerOptions:
    """Options of the network.

    Attributes:
        name: a MobileNet of timm; the paper's is ``mobilenetv1_100``.
        weights: safetensors file of weights under timm's names, e.g. pretrained on ImageNet; those of the last layer
            are ignored if their shape differs. None for random weights.
    """

    file_arguments: ClassVar[Mapping[str, tuple[str, ...]]] = {"weights": ()}

    name: str = "mobilenetv1_100"
    weights: str | None = None


class Tagger(nn.Module):
    """MobileNet whose batch norms share only scale and shift.

    Args:
        network: options.
        labels: number of labels K.
        generator: source of the initial weights, None to draw none.

    Raises:
        InputError: timm has no MobileNet of this name, or the file does not contain its weights.
    """

    def __init__(self, network: TaggerOptions, *, labels: int, generator: torch.Generator | None) -> None:
        import timm  # takes seconds, and few trainings need it

        super().__init__()
        mobilenets = timm.list_models("mobilenet*")
        require(
            network.name in mobilenets,
            f"a network among {', '.join(mobilenets)}",
            network.name,
            "The paper's is mobilenetv1_100.",
        )
        self.network = timm.create_model(network.name, pretrained=False, num_classes=labels)
        if generator is not None:
            _draw_weights(self.network, generator)
        if network.weights is not None:
            _load(self.network, Path(network.weights))
        _share_no_statistics(self.network)

    def forward(self, images: Tensor) -> Tensor:
        """``(N, 3, height, width)`` in [0, 1] -> logits ``(N, K)``."""
        logits: Tensor = self.network(images)
        return logits


@torch.no_grad()
def _draw_weights(network: nn.Module, generator: torch.Generator) -> None:
    """Draws convolutions by He initialisation and the last layer from torch's default, with one generator."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            fan_out = layer.weight[0, 0].numel() * layer.out_channels / layer.groups
            layer.weight.normal_(0, (2 / fan_out) ** 0.5, generator=generator)
        elif isinstance(layer, nn.Linear):
            draw_layers(layer, generator)


def _load(network: nn.Module, path: Path) -> None:
    expected = network.state_dict()
    try:
        # The last layer may have another number of labels; then it keeps its drawn weights.
        stored = load_file(path)
        loaded = {name: value for name, value in stored.items() if not name.startswith(f"{HEAD}.")}
        loaded |= {
            name: value for name, value in stored.items() if name in expected and expected[name].shape == value.shape
        }
        missing = set(expected) - set(loaded) - {f"{HEAD}.weight", f"{HEAD}.bias"}
        if missing:
            raise KeyError(sorted(missing)[0])
        network.load_state_dict(loaded, strict=False)
    except (OSError, SafetensorError, KeyError, RuntimeError) as error:
        raise InputError(
            expected=f"weights of {type(network).__name__} as safetensors in {path}",
            found=str(error),
            way_out="Convert the weights of timm's network of that name, or leave network.weights out.",
        ) from None


def _share_no_statistics(module: nn.Module) -> None:
    """Replaces batch norms by ones with batch statistics, because deltas do not contain running statistics."""
    from timm.layers import BatchNormAct2d

    for name, child in module.named_children():
        if isinstance(child, BatchNormAct2d | nn.BatchNorm2d):
            norm = BatchNorm(child.num_features)
            with torch.no_grad():
                norm.weight.copy_(child.weight)
                norm.bias.copy_(child.bias)
            activation = child.act if isinstance(child, BatchNormAct2d) else nn.Identity()
            setattr(module, name, nn.Sequential(norm, activation))
        else:
            _share_no_statistics(child)


def multilabel_loss(logits: Tensor, labels: Tensor, *, reduction: str) -> Tensor:
    """Binary cross-entropies ``(N, K)`` of the labels."""
    return functional.binary_cross_entropy_with_logits(logits, labels.float(), reduction=reduction)


@dataclass(frozen=True, kw_only=True)
class TaggerAlgorithm(NetworkAlgorithm):
    """Clients that learn the labels of uint8 images.

    Attributes:
        network: options of the network.
        num_classes: number of labels.
    """

    name: ClassVar[str] = "tagger"

    network: TaggerOptions
    num_classes: PositiveInt

    def __post_init__(self) -> None:
        require(
            self.network.weights is None,
            "no file of weights, because the rounds of a recording contain them",
            self.network.weights,
            "Set network.weights to null.",
        )

    @property
    def criterion(self) -> Callable[..., Tensor]:
        return multilabel_loss

    def network_shapes(self, recorded: Shapes) -> dict[str, tuple[int, ...]]:
        with torch.device("meta"):
            tagger = Tagger(self.network, labels=self.num_classes, generator=None)
        return {name: tuple(value.shape) for name, value in tagger.named_parameters()}

    @functools.cached_property
    def template(self) -> nn.Module:
        return Tagger(self.network, labels=self.num_classes, generator=torch.Generator())
