"""What attacks on class compositions share: rounds combined, the last layer's change, and the auxiliary images."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from attacks.base import Attack
from attacks.estimates import CompositionEstimate
from protocol.simulators import ClassifierSimulator
from protocol.view import ServerView, ViewError

IMAGES, LABELS = "images", "labels"
AUXILIARY = (f"auxiliary:{IMAGES}", f"auxiliary:{LABELS}")
Rounds = Literal["last", "all"]


@dataclass(frozen=True, kw_only=True)
class CompositionAttack(Attack):
    """An attack that estimates every round by itself.

    Args:
        rounds: ``last`` for the view's own round, ``all`` to combine it with the earlier ones in the view.
    """

    family = "composition"
    estimates = CompositionEstimate
    tells = "what share of its examples each class has"

    rounds: Rounds = "last"

    def run(self, view: ServerView, *, generator: torch.Generator) -> CompositionEstimate:
        if self.rounds == "last":
            return self.estimate(view, generator=generator)
        views = [*view.earlier, view]
        for one in views:
            if not torch.equal(one.pseudonyms, view.pseudonyms):
                raise ViewError(f"round {one.round}: expected the same victims in the same order, got others")
        return self.combine([self.estimate(one, generator=generator) for one in views])

    @abc.abstractmethod
    def estimate(self, view: ServerView, *, generator: torch.Generator) -> CompositionEstimate:
        """The estimate from one round."""

    def combine(self, estimates: Sequence[CompositionEstimate]) -> CompositionEstimate:
        """The plain mean of the rounds, normalised (section IV-B); a class is present where any round says so."""
        mean = torch.stack([e.proportions for e in estimates]).mean(0)
        return certain(mean, torch.stack([e.present for e in estimates]).any(0))


def certain(proportions: Tensor, present: Tensor) -> CompositionEstimate:
    """An estimate without intervals."""
    total = proportions.sum(1, keepdim=True)
    nothing = torch.full_like(proportions, torch.nan)
    return CompositionEstimate(proportions=proportions / total, low=nothing, high=nothing, present=present)


def by_information(estimates: Sequence[CompositionEstimate]) -> CompositionEstimate:
    """Rounds weighted by the inverse of their variance, class by class, as their intervals say it.

    The rounds' errors are taken for independent; the interval of the mean is therefore no wider than the narrowest.
    A round that calls a class null, which others call present, says nothing of its share.
    """
    centre = torch.stack([e.proportions for e in estimates])
    half = torch.stack([(e.high - e.low) / 2 for e in estimates]).clamp(min=1e-6)
    found = torch.stack([e.present for e in estimates])
    present = found.any(0)
    information = half**-2 * found
    total = information.sum(0).where(present, 1)
    mean = (centre * information).sum(0) / total
    mean = mean / mean.sum(1, keepdim=True)
    width = total**-0.5 * present
    return CompositionEstimate(
        proportions=mean, low=(mean - width).clamp(0, 1), high=(mean + width).clamp(0, 1), present=present
    )


@dataclass(frozen=True)
class LayerChange:
    """Decaf's first step, gradient change extraction (equation 4), for the last linear layer.

    The paper divides local minus global weights by the learning rate. That factor is common to the clients and to the
    gradient bases, so it cancels from the proportions and from the sign of an entry, and is left out.

    Attributes:
        weight: ``(V, K, F)`` row c belongs to class c.
        bias: ``(V, K)``.
    """

    weight: Tensor
    bias: Tensor

    @property
    def flat(self) -> Tensor:
        """``(V, K * (F + 1))``."""
        return torch.cat([self.weight.flatten(1), self.bias], dim=1)


def layer_change(view: ServerView, deltas: dict[str, Tensor] | None = None) -> LayerChange:
    """The change of the last layer, of the view's victims or of given deltas.

    Raises:
        ViewError: the recording does not hold the last layer.
    """
    name = view.require(ClassifierSimulator).output_layer
    source = view.deltas if deltas is None else deltas
    for parameter in (f"{name}.weight", f"{name}.bias"):
        if parameter not in source:
            raise ViewError(f"expected the deltas of the last layer, got a recording without {parameter!r}")
    return LayerChange(source[f"{name}.weight"], source[f"{name}.bias"])


def flat_change(view: ServerView, layer: str | None = None, deltas: dict[str, Tensor] | None = None) -> Tensor:
    """``(V, D)`` the change of one layer's parameters side by side, of the view's victims or of given deltas.

    Args:
        view: what the server has.
        layer: its name, such as ``body.0``; None for the last layer.
        deltas: ``(V, *shape)`` by parameter, None for the view's.

    Raises:
        ViewError: the recording does not hold the layer.
    """
    if layer is None:
        return layer_change(view, deltas).flat
    source = view.deltas if deltas is None else deltas
    parts = [value.flatten(1) for name, value in source.items() if name.rpartition(".")[0] == layer]
    if not parts:
        held = ", ".join(sorted({name.rpartition(".")[0] for name in source}))
        raise ViewError(f"expected deltas of the layer {layer!r}, got a recording of {held}")
    return torch.cat(parts, dim=1)


@dataclass(frozen=True)
class Auxiliary:
    """The attacker's own images.

    Attributes:
        images: ``(M, channels, height, width)``.
        labels: ``(M,)``.
        by_class: ``(K, k)`` numbers of the images of every class, padded with -1.
    """

    images: Tensor
    labels: Tensor
    by_class: Tensor

    @property
    def per_class(self) -> Tensor:
        """``(K,)`` images of every class."""
        return (self.by_class >= 0).sum(1)


def auxiliary(view: ServerView, classes: int, most: int | None = None) -> Auxiliary:
    """The auxiliary images of a view.

    Args:
        view: what the server has.
        classes: K.
        most: take only the first so many of each class.

    Raises:
        ViewError: a class has no image, or a label is of no class.
    """
    images, labels = view.auxiliary[IMAGES], view.auxiliary[LABELS]
    if len(images) != len(labels) or (len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes):
        raise ViewError(f"expected auxiliary images with a label below {classes} each, got others")
    numbers = [(labels == c).nonzero().flatten()[:most] for c in range(classes)]
    missing = [c for c, own in enumerate(numbers) if not len(own)]
    if missing:
        raise ViewError(f"expected auxiliary images of every class, got none of class {missing[0]}")
    return Auxiliary(images, labels, torch.nn.utils.rnn.pad_sequence(numbers, batch_first=True, padding_value=-1))
