"""The linear map from the clicks of one list to a client's update."""

from collections.abc import Mapping

import torch
from torch import Tensor

from attacks.interactions.pair_weights import laplacian, pair_weights

LINEAR, HIDDEN, OUTPUT = "ranker.weight", "hidden.weight", "output.weight"


def ranker_outputs(model: Mapping[str, Tensor], features: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Scores of documents and their gradients by the ranker's parameters.

    Args:
        model: a linear ranker ``(F,)``, or hidden layer ``(H, F)`` and output ``(H,)``.
        features: ``(..., F)``.

    Returns:
        Scores ``(...)`` and, by parameter, gradients ``(..., *shape)``.
    """
    if LINEAR in model:
        return features @ model[LINEAR], {LINEAR: features}
    units = torch.relu(features @ model[HIDDEN].T)
    through = (units > 0) * model[OUTPUT]
    return units @ model[OUTPUT], {HIDDEN: through[..., None] * features[..., None, :], OUTPUT: units}


def click_map(model: Mapping[str, Tensor], features: Tensor, mask: Tensor, learning_rate: float) -> dict[str, Tensor]:
    """What one click adds to the update, at the given model.

    Args:
        model: the ranker before the step.
        features: ``(V, Q, L, F)`` as served, in displayed order.
        mask: ``(V, Q, L)`` True for documents.
        learning_rate: local learning rate.

    Returns:
        By parameter ``(V, Q, L, P)``, P its numbers.
    """
    scores, gradients = ranker_outputs(model, features)
    mixing = learning_rate * laplacian(pair_weights(scores, mask))
    return {name: mixing.transpose(-1, -2) @ value.flatten(3) for name, value in gradients.items()}
