"""Linear and one-hidden-layer rankers: parameter names, scores and their gradients."""

from collections.abc import Mapping

import torch
from torch import Tensor

LINEAR, HIDDEN, OUTPUT = "ranker.weight", "hidden.weight", "output.weight"


def stack_model(model: Mapping[str, Tensor], victims: int) -> dict[str, Tensor]:
    """A ranker for each victim, ``(V, *shape)``, of one that all received or of one for each."""
    single = model[LINEAR if LINEAR in model else OUTPUT].dim() == 1
    return {name: value.expand(victims, *value.shape) if single else value for name, value in model.items()}


def ranker_outputs(model: Mapping[str, Tensor], features: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Scores ``(V, Q, L)`` of documents ``(V, Q, L, F)`` and, by parameter, their gradients ``(V, Q, L, *shape)``.

    The model is a linear ranker ``(V, F)`` for each victim, or a hidden layer ``(V, H, F)`` and an output ``(V, H)``.
    """
    if LINEAR in model:
        return (features * model[LINEAR][:, None, None]).sum(-1), {LINEAR: features}
    units = torch.relu(features @ model[HIDDEN][:, None].transpose(2, 3))
    output = model[OUTPUT][:, None, None]
    through = (units > 0) * output
    gradients = {HIDDEN: through[..., None] * features[..., None, :], OUTPUT: units}
    return (units * output).sum(-1), gradients
