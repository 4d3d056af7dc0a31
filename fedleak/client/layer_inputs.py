"""What a layer of a client's network gets of given examples."""

import copy
from collections.abc import Mapping

from torch import Tensor
from torch.func import functional_call

from fedleak.client.network import NetworkAlgorithm


def layer_inputs(algorithm: NetworkAlgorithm, model: Mapping[str, Tensor], inputs: Tensor, layer: str) -> Tensor:
    """``(M, D)`` what a linear layer gets of each of the examples ``(M, *shape)``, in the precision of the model."""
    network = copy.deepcopy(algorithm.template)
    seen_inputs = list[Tensor]()
    network.get_submodule(layer).register_forward_pre_hook(lambda _, read: seen_inputs.append(read[0].detach()))
    functional_call(network, algorithm.trained(model), (inputs,))
    return seen_inputs[0]
