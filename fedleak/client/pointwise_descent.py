"""Full-batch gradient descent on the mean cross-entropy of clients that score items one by one.

A ranker has F features and H hidden ReLU units with biases, and an output with a bias; a linear one, without a bias, is
represented by one unit that is always active, with output weight one, which is not updated. A bias is the weight of an
input that is always one: the last feature, and the last unit. All clients of a batch are trained at once; if they were
served the same items, a step is a single matrix product.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.client.algorithm import ClientAlgorithm, Shapes
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.ranking import ranker_shapes
from fedleak.core.ranges import PositiveFloat, PositiveInt
from fedleak.core.rankers import HIDDEN, LINEAR, OUTPUT

HIDDEN_BIAS, OUTPUT_BIAS = "hidden.bias", "output.bias"


class Items:
    """Features ``(V, R, F)`` of the served items; expanded features, shared by all clients, are stored once.

    Args:
        features: the features.
        biases: append the feature that is always one, for rankers with biases.
    """

    def __init__(self, features: Tensor, *, biases: bool = False) -> None:
        self.shared = features.shape[0] == 1 or features.stride(0) == 0
        stored = features[0] if self.shared else features
        if biases:
            stored = _with_one(stored)
        self.features = stored
        self.norms = self.features.square().sum(-1)

    def __len__(self) -> int:
        return int(self.features.shape[-2])

    def forward(self, weight: Tensor) -> Tensor:
        """Products ``(V, R, H)`` of every item with weights ``(V, H, F)``."""
        if not self.shared:
            return self.features @ weight.transpose(1, 2)
        # Shared items: one product with the weights of all clients, which are put next to each other.
        victims, units, width = weight.shape
        flat = self.features @ weight.reshape(victims * units, width).T
        return flat.reshape(-1, victims, units).transpose(0, 1)

    def backward(self, coefficients: Tensor) -> Tensor:
        """Sums ``(V, H, F)`` of all items, weighted by coefficients ``(V, R, H)``."""
        if not self.shared:
            return coefficients.transpose(1, 2) @ self.features
        victims, rows, units = coefficients.shape
        flat = coefficients.transpose(1, 2).reshape(victims * units, rows) @ self.features
        return flat.reshape(victims, units, -1)


@dataclass(frozen=True)
class Ranker:
    """Rankers of several clients, or changes of them: hidden ``weight (V, H, F)`` and ``output (V, H)``.

    With biases they are ``(V, H, F + 1)`` and ``(V, H + 1)``. For a linear ranker, H = 1 and the output is None.
    """

    weight: Tensor
    output: Tensor | None

    def plus(self, other: "Ranker", factor: float = 1.0) -> "Ranker":
        """This ranker plus another times a factor."""
        weight = self.weight + factor * other.weight
        if self.output is None or other.output is None:
            return Ranker(weight, None)
        return Ranker(weight, self.output + factor * other.output)

    def times(self, factor: float | Tensor) -> "Ranker":
        """The ranker times a factor, or a factor per client ``(V,)``."""
        output = self.output
        if isinstance(factor, float):
            if output is not None:
                output = output * factor
            return Ranker(self.weight * factor, output)
        if output is not None:
            output = output * factor[:, None]
        return Ranker(self.weight * factor[:, None, None], output)

    def squares(self) -> Tensor:
        """``(V,)`` squared norm."""
        total = self.weight.square().sum((1, 2))
        if self.output is None:
            return total
        return total + self.output.square().sum(1)

    @property
    def biases(self) -> bool:
        """Whether the ranker has biases."""
        return self.output is not None and self.output.shape[1] > self.weight.shape[1]

    @property
    def numbers(self) -> int:
        """Number of parameters of one client."""
        if self.output is None:
            return self.weight[0].numel()
        return self.weight[0].numel() + self.output[0].numel()


@dataclass(frozen=True)
class Outputs:
    """Click ``probabilities (V, R)`` of rankers, and two factors ``(V, R, H)`` of the scores' gradients.

    `slopes` is the factor for each row of the weights, `hidden` the gradient with respect to the output weights, with
    biases ``(V, R, H + 1)``, None for a linear ranker.
    """

    probabilities: Tensor
    slopes: Tensor
    hidden: Tensor | None


def as_ranker(parameters: Mapping[str, Tensor]) -> Ranker:
    """A ranker from parameters by name.

    ``(V, F)`` for a linear one, otherwise ``(V, H, F)`` and ``(V, H)``, and with biases also ``(V, H)`` and ``(V, 1)``.
    """
    if LINEAR in parameters:
        return Ranker(parameters[LINEAR][:, None], None)
    if HIDDEN_BIAS not in parameters:
        return Ranker(parameters[HIDDEN], parameters[OUTPUT])
    weight = torch.cat([parameters[HIDDEN], parameters[HIDDEN_BIAS][..., None]], dim=2)
    return Ranker(weight, torch.cat([parameters[OUTPUT], parameters[OUTPUT_BIAS]], dim=1))


def as_parameters(ranker: Ranker) -> dict[str, Tensor]:
    """The inverse of `as_ranker`."""
    if ranker.output is None:
        return {LINEAR: ranker.weight[:, 0]}
    if not ranker.biases:
        return {HIDDEN: ranker.weight, OUTPUT: ranker.output}
    return {
        HIDDEN: ranker.weight[..., :-1],
        HIDDEN_BIAS: ranker.weight[..., -1],
        OUTPUT: ranker.output[:, :-1],
        OUTPUT_BIAS: ranker.output[:, -1:],
    }


def outputs(ranker: Ranker, items: Items) -> Outputs:
    """The outputs of rankers for their items."""
    inputs = items.forward(ranker.weight)
    if ranker.output is None:
        return Outputs(torch.sigmoid(inputs[..., 0]), torch.ones_like(inputs), None)
    # s = o . relu(W x): by o it is relu(W x), by row h of W it is o_h x where unit h is active.
    hidden = inputs.relu()
    slopes = (inputs > 0) * ranker.output[:, None, : inputs.shape[-1]]
    if ranker.biases:
        hidden = _with_one(hidden)
    scores = (hidden * ranker.output[:, None]).sum(-1)
    return Outputs(torch.sigmoid(scores), slopes, hidden)


def pull(ranked: Outputs, items: Items, residual: Tensor) -> Ranker:
    """Sum over items of a residual ``(V, R)`` times the gradient of the item's score."""
    hidden = None
    if ranked.hidden is not None:
        hidden = (ranked.hidden * residual[..., None]).sum(1)
    return Ranker(items.backward(ranked.slopes * residual[..., None]), hidden)


def descend(ranker: Ranker, items: Items, clicks: Tensor, *, learning_rate: float, steps: int) -> list[Ranker]:
    """The rankers before each step and after the last (RAIFLE, section V.C.1).

    Args:
        ranker: the rankers that the clients received.
        items: the served items.
        clicks: ``(V, R)`` in [0, 1]; differentiable.
        learning_rate: of plain gradient descent on the mean cross-entropy.
        steps: number of full-batch steps.
    """
    rankers = [ranker]
    for _ in range(steps):
        ranked = outputs(rankers[-1], items)
        # Minus the gradient of the cross-entropy is the sum over items of (click - probability) grad s.
        step = pull(ranked, items, clicks - ranked.probabilities)
        rankers.append(rankers[-1].plus(step, learning_rate / len(items)))
    return rankers


def _with_one(values: Tensor) -> Tensor:
    """Values ``(..., N)`` with a last column of ones."""
    return torch.cat([values, values.new_ones(*values.shape[:-1], 1)], dim=-1)


@dataclass(frozen=True, kw_only=True)
class VoteAlgorithm(ClientAlgorithm):
    """Clients that learn a score of each item separately, in full-batch steps.

    Attributes:
        learning_rate: learning rate of gradient descent on the mean binary cross-entropy.
        full_batch_steps: number of steps, each over all items.
    """

    name: ClassVar[str] = "image-ranker"

    learning_rate: PositiveFloat = 0.01
    full_batch_steps: PositiveInt = 5

    @property
    def local(self) -> LocalTraining:
        """Local training as options of the engine."""
        return LocalTraining(learning_rate=self.learning_rate, epochs=self.full_batch_steps)

    def network_shapes(self, recorded: Shapes) -> dict[str, tuple[int, ...]]:
        shapes = ranker_shapes(recorded)
        if HIDDEN_BIAS in recorded:
            shapes |= {HIDDEN_BIAS: recorded[OUTPUT], OUTPUT_BIAS: (1,)}
        return shapes

    def simulate_votes(self, models: Mapping[str, Tensor], features: Tensor, votes: Tensor) -> dict[str, Tensor]:
        """Deltas of clients that start from different models, differentiable in the votes.

        Args:
            models: ``(V, *shape)`` by parameter.
            features: ``(V, R, F)``; expanded if all clients were served the same images.
            votes: ``(V, R)`` in [0, 1].

        Returns:
            Deltas by parameter, ``(V, *shape)``.
        """
        sent = as_ranker(models)
        items = Items(features, biases=sent.biases)
        rankers = descend(sent, items, votes, learning_rate=self.learning_rate, steps=self.full_batch_steps)
        return as_parameters(rankers[-1].plus(sent, -1.0))
