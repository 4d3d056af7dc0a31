"""What of a client's change tells its composition: the last layer, and what the changed model makes of known images."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.base import ServerView
from attacks.composition.view import Auxiliary, layer_change

Blocks = dict[str, Tensor]


@dataclass(frozen=True)
class Probes:
    """The known images on which a changed model is tried.

    Attributes:
        images: ``(K * p, channels, height, width)``, p of each class, class after class.
        hidden: ``(K, F)`` mean features of each class under the global model.
        logits: ``(K, K)`` mean logits, class by class.
    """

    images: Tensor
    hidden: Tensor
    logits: Tensor


def make_probes(view: ServerView, known: Auxiliary, per_class: int) -> Probes:
    """Takes the first images of every class; a class with fewer repeats them."""
    turn = torch.arange(per_class)[None] % known.per_class[:, None]
    images = known.images[known.by_class.gather(1, turn).flatten()]
    hidden, logits = view.classifier().outputs({name: value[None] for name, value in view.model.items()}, images)
    classes = len(known.by_class)
    return Probes(images, _by_class(hidden, classes)[0], _by_class(logits, classes)[0])


def change_features(view: ServerView, deltas: dict[str, Tensor], probes: Probes) -> Blocks:
    """The blocks of features of some changes.

    Args:
        view: what the server has.
        deltas: ``(B, *shape)`` by parameter; where earlier layers are missing, they are taken for unchanged.
        probes: the images to try them on.

    Returns:
        By block ``(B, D)``: change of the last layer's ``weight`` and ``bias``; by class of the probes the mean change
        of the logits, centred over the classes (``logits``), the mean probabilities (``softmax``), and the mean change
        of the features that enter the last layer (``hidden``), which tells what earlier layers did.
    """
    change = layer_change(view, deltas)
    count, classes = change.bias.shape
    models = {
        name: value + deltas[name] if name in deltas else value.expand(count, *value.shape)
        for name, value in view.model.items()
    }
    hidden, logits = view.classifier().outputs(models, probes.images)
    moved = _by_class(logits, classes) - probes.logits
    return {
        "weight": change.weight.flatten(1),
        "bias": change.bias,
        "logits": (moved - moved.mean(2, keepdim=True)).flatten(1),
        "softmax": _by_class(logits.softmax(2), classes).flatten(1),
        "hidden": (_by_class(hidden, classes) - probes.hidden).flatten(1),
    }


def joined(blocks: Blocks, scales: dict[str, float]) -> Tensor:
    """``(B, D)`` all blocks side by side, each in its own unit."""
    return torch.cat([blocks[name].double() / scale for name, scale in scales.items()], dim=1)


def block_scales(blocks: Blocks) -> dict[str, float]:
    """The r.m.s. of every block about its mean over the clients."""
    spread = {name: value - value.mean(0) for name, value in blocks.items()}
    return {name: max(float(value.double().square().mean().sqrt()), 1e-12) for name, value in spread.items()}


def _by_class(values: Tensor, classes: int) -> Tensor:
    """``(B, K * p, X)`` -> means ``(B, K, X)``."""
    return values.reshape(len(values), classes, -1, values.shape[2]).mean(2)
