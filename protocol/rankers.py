"""Linear and one-hidden-layer rankers: parameter names, scores and their gradients."""

from collections.abc import Mapping

import torch
from torch import Tensor

LINEAR, HIDDEN, OUTPUT = "ranker.weight", "hidden.weight", "output.weight"


def stack_model(model: Mapping[str, Tensor], victims: int) -> dict[str, Tensor]:
    """The same ranker for every victim, ``(V, *shape)``."""
    return {name: value.expand(victims, *value.shape) for name, value in model.items()}


def ranker_outputs(model: Mapping[str, Tensor], features: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Scores of documents and their gradients by the ranker's parameters.

    Args:
        model: for each victim a linear ranker ``(V, F)``, or hidden layer ``(V, H, F)`` and output ``(V, H)``.
        features: ``(V, Q, L, F)``.

    Returns:
        Scores ``(V, Q, L)`` and, by parameter, gradients ``(V, Q, L, *shape)``.
    """
    if LINEAR in model:
        return (features * model[LINEAR][:, None, None]).sum(-1), {LINEAR: features}
    units = torch.relu(features @ model[HIDDEN][:, None].transpose(2, 3))
    output = model[OUTPUT][:, None, None]
    through = (units > 0) * output
    gradients = {HIDDEN: through[..., None] * features[..., None, :], OUTPUT: units}
    return (units * output).sum(-1), gradients
