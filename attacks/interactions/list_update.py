"""The linear map from the clicks of one list to a client's update."""

from collections.abc import Mapping

import torch
from torch import Tensor

from attacks.base import ServerView, ViewError
from attacks.interactions.pair_weights import laplacian, pair_weights

LINEAR, HIDDEN, OUTPUT = "ranker.weight", "hidden.weight", "output.weight"


def stack_model(model: Mapping[str, Tensor], victims: int) -> dict[str, Tensor]:
    """The same ranker for every victim, ``(V, *shape)``."""
    return {name: value.expand(victims, *value.shape) for name, value in model.items()}


def model_deltas(view: ServerView) -> dict[str, Tensor]:
    """Deltas of all of the ranker's parameters, ``(V, *shape)`` each.

    Raises:
        ViewError: clients sent something else, or some were not recorded.
    """
    missing = [name for name in view.model if name not in view.deltas]
    if missing:
        raise ViewError(
            f"expected the deltas of {', '.join(missing)}, got {', '.join(view.deltas)}; record all of them"
        )
    return {name: view.deltas[name] for name in view.model}


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


def click_map(model: Mapping[str, Tensor], features: Tensor, mask: Tensor, learning_rate: float) -> dict[str, Tensor]:
    """What one click adds to the update, with pair weights as they are at the given model.

    Args:
        model: each victim's ranker; see `ranker_outputs`.
        features: ``(V, Q, L, F)`` as served, in displayed order.
        mask: ``(V, Q, L)`` True for documents.
        learning_rate: local learning rate.

    Returns:
        By parameter ``(V, Q, L, P)``, P its numbers.
    """
    scores, gradients = ranker_outputs(model, features)
    mixing = learning_rate * laplacian(pair_weights(scores, mask))
    return {name: mixing.transpose(-1, -2) @ value.flatten(3) for name, value in gradients.items()}
