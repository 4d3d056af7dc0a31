"""Rankers of online learning to rank: linear or with one hidden ReLU layer, without biases (RAIFLE, section V.B.1)."""

from collections.abc import Mapping

import torch
from torch import Tensor

LINEAR = "ranker.weight"
HIDDEN = "hidden.weight"
OUTPUT = "output.weight"


def ranker_parameters(
    num_features: int, hidden: int, generator: torch.Generator, *, scaled: bool = False
) -> dict[str, Tensor]:
    """Initial ranker: ``(F,)``, or ``(H, F)`` and ``(H,)`` with hidden units.

    Args:
        num_features: number F of features.
        hidden: number H of hidden units, 0 for a linear ranker.
        generator: source of the weights.
        scaled: divide the weights by the square root of their layer's number of inputs, as torch and the published code
            for images do; without, weights are U(-1, 1) as in the published code for documents.
    """
    shapes: dict[str, tuple[int, ...]] = (
        {HIDDEN: (hidden, num_features), OUTPUT: (hidden,)} if hidden else {LINEAR: (num_features,)}
    )
    drawn = {name: torch.rand(shape, generator=generator) * 2 - 1 for name, shape in shapes.items()}
    return {name: value / value.shape[-1] ** 0.5 for name, value in drawn.items()} if scaled else drawn


def ranker_shapes(held: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Shapes of a ranker with the features and hidden units of a recorded one."""
    if LINEAR in held:
        return {LINEAR: (held[LINEAR][0],)}
    hidden, features = held[HIDDEN]
    return {HIDDEN: (hidden, features), OUTPUT: (hidden,)}


def rank_scores(parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
    """Scores ``(C, ..., L)`` of documents ``(C, ..., L, F)`` under stacked rankers ``(C, *shape)``."""
    if LINEAR in parameters:
        return (features * _between(parameters[LINEAR], features)).sum(-1)
    return (hidden_units(parameters, features) * _between(parameters[OUTPUT], features)).sum(-1)


def score_gradients(parameters: Mapping[str, Tensor], features: Tensor, coefficients: Tensor) -> dict[str, Tensor]:
    """Gradients ``sum_i c_i grad s_i`` over all documents of a client, by parameter.

    Args:
        parameters: stacked rankers.
        features: ``(C, ..., L, F)``.
        coefficients: ``(C, ..., L)``.
    """
    flat, weights = features.flatten(1, -2), coefficients.flatten(1)
    if LINEAR in parameters:
        return {LINEAR: (weights[:, None] @ flat).squeeze(1)}
    units = hidden_units(parameters, features).flatten(1, -2)
    through = (units > 0) * weights[..., None] * parameters[OUTPUT][:, None]
    return {HIDDEN: through.transpose(1, 2) @ flat, OUTPUT: (weights[:, None] @ units).squeeze(1)}


def hidden_units(parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
    """``(C, ..., L, H)`` outputs of the hidden layer."""
    weight = parameters[HIDDEN]
    flat = torch.relu(features.flatten(1, -2) @ weight.transpose(1, 2))
    return flat.reshape(*features.shape[:-1], weight.shape[1])


def _between(value: Tensor, features: Tensor) -> Tensor:
    """``(C, W)`` values with dimensions of size 1 between, for broadcasting with `features`."""
    return value.reshape(value.shape[0], *[1] * (features.dim() - 2), value.shape[-1])
