"""Rankers of online learning to rank: linear or with one hidden ReLU layer, without biases (RAIFLE, section V.B.1)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from protocol.rankers import HIDDEN, LINEAR, OUTPUT


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
