"""Linear and one-hidden-layer rankers: parameter names, scores and their gradients."""

from collections.abc import Mapping

import torch
from torch import Tensor

LINEAR = "ranker.weight"
HIDDEN = "hidden.weight"
OUTPUT = "output.weight"


def stack_model(model: Mapping[str, Tensor], victims: int) -> dict[str, Tensor]:
    """A ranker for each victim, ``(V, *shape)``, of one that all received or of one for each."""
    # The weights of the scores are a vector in one ranker, and a matrix in a stack.
    scoring = model[LINEAR if LINEAR in model else OUTPUT]
    if scoring.dim() > 1:
        return dict(model)
    return {name: value.expand(victims, *value.shape) for name, value in model.items()}


def ranker_outputs(model: Mapping[str, Tensor], features: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Scores ``(V, Q, L)`` of documents ``(V, Q, L, F)`` and, by parameter, their gradients ``(V, Q, L, *shape)``.

    The model is a linear ranker ``(V, F)`` for each victim, or a hidden layer ``(V, H, F)`` and an output ``(V, H)``.
    """
    if LINEAR in model:
        # s = w x, so its gradient by w is x.
        scores = (features * model[LINEAR][:, None, None]).sum(-1)
        return scores, {LINEAR: features}
    # s = v relu(W x): the gradient by v is relu(W x), that by W is v x^T in the units above 0.
    units = torch.relu(features @ model[HIDDEN][:, None].transpose(2, 3))
    output = model[OUTPUT][:, None, None]
    through_units = (units > 0) * output
    gradients = {HIDDEN: through_units[..., None] * features[..., None, :], OUTPUT: units}
    return (units * output).sum(-1), gradients


def rank_scores(parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
    """Scores ``(C, ..., L)`` of documents ``(C, ..., L, F)`` under stacked rankers ``(C, *shape)``."""
    if LINEAR in parameters:
        return (features * _between(parameters[LINEAR], features)).sum(-1)
    units = hidden_units(parameters, features)
    return (units * _between(parameters[OUTPUT], features)).sum(-1)


def score_gradients(parameters: Mapping[str, Tensor], features: Tensor, coefficients: Tensor) -> dict[str, Tensor]:
    """Gradients ``sum_i c_i grad s_i`` over all documents of a client, by parameter.

    Args:
        parameters: stacked rankers.
        features: ``(C, ..., L, F)``.
        coefficients: ``(C, ..., L)``.
    """
    # All documents of a client in one dimension, whatever lists they are in.
    documents = features.flatten(1, -2)
    weights = coefficients.flatten(1)
    if LINEAR in parameters:
        return {LINEAR: (weights[:, None] @ documents).squeeze(1)}
    units = hidden_units(parameters, features).flatten(1, -2)
    through_units = (units > 0) * weights[..., None] * parameters[OUTPUT][:, None]
    return {
        HIDDEN: through_units.transpose(1, 2) @ documents,
        OUTPUT: (weights[:, None] @ units).squeeze(1),
    }


def hidden_units(parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
    """``(C, ..., L, H)`` outputs of the hidden layer."""
    weight = parameters[HIDDEN]
    flat = torch.relu(features.flatten(1, -2) @ weight.transpose(1, 2))
    return flat.reshape(*features.shape[:-1], weight.shape[1])


def _between(value: Tensor, features: Tensor) -> Tensor:
    """``(C, W)`` values with dimensions of size 1 between, for broadcasting with `features`."""
    return value.reshape(value.shape[0], *[1] * (features.dim() - 2), value.shape[-1])
