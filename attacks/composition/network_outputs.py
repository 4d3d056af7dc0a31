"""Features and logits of images under models of clients that classify."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.func import functional_call

from client.nets.batch_norm import mask_batches
from client.network import ClassifierAlgorithm


@torch.no_grad()
def network_outputs(
    algorithm: ClassifierAlgorithm, models: Mapping[str, Tensor], images: Tensor
) -> tuple[Tensor, Tensor]:
    """Inputs of the last layer ``(B, M, F)`` and logits ``(B, M, K)`` of models ``(B, *shape)`` for M images.

    Batch norms use the statistics of these images.
    """
    network, features, logits = copy.deepcopy(algorithm.template), list[Tensor](), []
    mask_batches(network, None)
    network.get_submodule(algorithm.output_layer).register_forward_pre_hook(lambda _, given: features.append(given[0]))
    for position in range(len(next(iter(models.values())))):
        own = {name: value[position] for name, value in algorithm.trained(models).items()}
        logits.append(functional_call(network, own, (images,)))
    return torch.stack(features), torch.stack(logits)
