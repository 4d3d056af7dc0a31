"""MobileNets that tag photographs, with batch norms that share only scale and shift."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from client.nets.batch_norm import BatchNorm
from protocol.errors import InputError, require

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
        known = timm.list_models("mobilenet*")
        require(
            network.name in known,
            f"a network among {', '.join(known)}",
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
            bound = layer.in_features**-0.5
            layer.weight.uniform_(-bound, bound, generator=generator)
            layer.bias.uniform_(-bound, bound, generator=generator)


def _load(network: nn.Module, path: Path) -> None:
    own = network.state_dict()
    try:
        given = load_file(path)
        kept = {name: value for name, value in given.items() if not name.startswith(f"{HEAD}.")}
        kept |= {name: value for name, value in given.items() if name in own and own[name].shape == value.shape}
        missing = set(own) - set(kept) - {f"{HEAD}.weight", f"{HEAD}.bias"}
        if missing:
            raise KeyError(sorted(missing)[0])
        network.load_state_dict(kept, strict=False)
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
