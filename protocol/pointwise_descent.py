"""What a client does that learns a score of each item from its clicks: full-batch descent on the mean cross-entropy.

A ranker has F features and H hidden ReLU units; a linear one is kept as one unit that never saturates, with weight one
and without an update of it. All clients of a batch are trained at once; where they were served the same items, a step
is one product of matrices.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from protocol.rankers import HIDDEN, LINEAR, OUTPUT


class Items:
    """The features of the served items, which all clients share or not.

    Args:
        features: ``(V, R, F)``; an expanded tensor of one set of items is recognised.
    """

    def __init__(self, features: Tensor) -> None:
        self.shared = features.shape[0] == 1 or features.stride(0) == 0
        self.features = features[0] if self.shared else features
        self.norms = self.features.square().sum(-1)

    def __len__(self) -> int:
        return int(self.features.shape[-2])

    def forward(self, weight: Tensor) -> Tensor:
        """Products ``(V, R, H)`` of every item with weights ``(V, H, F)``."""
        if not self.shared:
            return self.features @ weight.transpose(1, 2)
        victims, units, width = weight.shape
        flat = self.features @ weight.reshape(victims * units, width).T
        return flat.reshape(-1, victims, units).transpose(0, 1)

    def backward(self, coefficients: Tensor) -> Tensor:
        """Sums ``(V, H, F)`` of all items, each times its coefficients ``(V, R, H)``."""
        if not self.shared:
            return coefficients.transpose(1, 2) @ self.features
        victims, rows, units = coefficients.shape
        flat = coefficients.transpose(1, 2).reshape(victims * units, rows) @ self.features
        return flat.reshape(victims, units, -1)


@dataclass(frozen=True)
class Ranker:
    """Rankers of several clients, or changes of them.

    Attributes:
        weight: ``(V, H, F)`` of the hidden layer, or of the linear ranker with H = 1.
        output: ``(V, H)``; None for a linear ranker.
    """

    weight: Tensor
    output: Tensor | None

    def plus(self, other: "Ranker", factor: float = 1.0) -> "Ranker":
        """This ranker, changed by another times a factor."""
        if self.output is None or other.output is None:
            return Ranker(self.weight + factor * other.weight, None)
        return Ranker(self.weight + factor * other.weight, self.output + factor * other.output)

    def times(self, factor: float | Tensor) -> "Ranker":
        """All numbers times a factor, or times one of each client ``(V,)``."""
        if isinstance(factor, float):
            return Ranker(self.weight * factor, None if self.output is None else self.output * factor)
        output = None if self.output is None else self.output * factor[:, None]
        return Ranker(self.weight * factor[:, None, None], output)

    def squares(self) -> Tensor:
        """``(V,)`` sum of the squares of all numbers."""
        total = self.weight.square().sum((1, 2))
        return total if self.output is None else total + self.output.square().sum(1)

    @property
    def numbers(self) -> int:
        """Numbers that one client sends."""
        return self.weight[0].numel() + (0 if self.output is None else self.output[0].numel())


@dataclass(frozen=True)
class Outputs:
    """What rankers make of their items.

    Attributes:
        probabilities: ``(V, R)`` of a click.
        slopes: ``(V, R, H)`` by how much an item's features move each row of the weights.
        hidden: ``(V, R, H)`` by how much an item moves the output weights; None for a linear ranker.
    """

    probabilities: Tensor
    slopes: Tensor
    hidden: Tensor | None


def as_ranker(parameters: Mapping[str, Tensor]) -> Ranker:
    """From parameters by name, ``(V, F)``, or ``(V, H, F)`` and ``(V, H)``."""
    if LINEAR in parameters:
        return Ranker(parameters[LINEAR][:, None], None)
    return Ranker(parameters[HIDDEN], parameters[OUTPUT])


def as_parameters(ranker: Ranker) -> dict[str, Tensor]:
    """The inverse of `as_ranker`."""
    if ranker.output is None:
        return {LINEAR: ranker.weight[:, 0]}
    return {HIDDEN: ranker.weight, OUTPUT: ranker.output}


def outputs(ranker: Ranker, items: Items) -> Outputs:
    """Probabilities, and the two factors of the scores' gradients."""
    inputs = items.forward(ranker.weight)
    if ranker.output is None:
        return Outputs(torch.sigmoid(inputs[..., 0]), torch.ones_like(inputs), None)
    hidden = inputs.relu()
    weights = ranker.output[:, None]
    return Outputs(torch.sigmoid((hidden * weights).sum(-1)), (inputs > 0) * weights, hidden)


def pull(found: Outputs, items: Items, residual: Tensor) -> Ranker:
    """The sum over items of a residual ``(V, R)`` times the gradient of the item's score."""
    hidden = None if found.hidden is None else (found.hidden * residual[..., None]).sum(1)
    return Ranker(items.backward(found.slopes * residual[..., None]), hidden)


def descend(ranker: Ranker, items: Items, clicks: Tensor, *, learning_rate: float, steps: int) -> list[Ranker]:
    """Every ranker on a client's way (RAIFLE, section V.C.1): before each step, and after the last.

    Args:
        ranker: the rankers that the clients were sent.
        items: what they were served.
        clicks: ``(V, R)`` in [0, 1]; gradients reach them.
        learning_rate: of plain gradient descent on the mean cross-entropy.
        steps: full-batch steps.
    """
    way = [ranker]
    for _ in range(steps):
        found = outputs(way[-1], items)
        step = pull(found, items, clicks - found.probabilities)
        way.append(way[-1].plus(step, learning_rate / len(items)))
    return way
