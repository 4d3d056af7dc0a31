"""Training objective of any network with any loss."""

import copy
import threading
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from client.engine.fast.gradients import Gradients, Parameters
from client.engine.fast.manual_backward import ChainGradients, chain_of
from client.engine.task import DRAWS, Task
from client.nets.batch_norm import mask_batches
from client.nets.dropout import Dropout, draw_dropout

NUMBER = "number"
"""Field of examples that are numbers of examples in a pool, see `NetworkTask.on`."""


class Network(nn.Module):
    """Network as the submodule `network`, the name that `NetworkLearner` uses.

    Args:
        network: maps inputs ``(N, ...)`` to outputs ``(N, ...)``.
    """

    is_chain = True

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.network(inputs)
        return outputs


class NetworkTask(Task):
    """Mean loss of a network over a client's examples.

    ::

        NetworkTask(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), functional.cross_entropy)

    Chains of common layers with cross-entropy have hand-written gradients.

    Args:
        network: maps inputs ``(N, ...)`` to outputs ``(N, ...)``; its parameters are only a template.
        loss: as in `torch.nn.functional`: ``loss(outputs, labels, reduction="none")`` with one or several values per
            example, which are averaged.
        inputs: field of the examples that is the network's input; uint8 images are scaled to [0, 1].
        labels: field of the examples that is the loss's target.
    """

    def __init__(
        self,
        network: nn.Module,
        loss: Callable[..., Tensor] = functional.cross_entropy,
        *,
        inputs: str = "image",
        labels: str = "label",
    ) -> None:
        self.network, self.criterion, self.names = network, loss, (inputs, labels)
        self.random = any(isinstance(layer, Dropout) and layer.probability > 0 for layer in network.modules())
        self._chain = chain_of(network) if loss is functional.cross_entropy else None
        self._local = threading.local()
        self._pool: tuple[Tensor, Tensor] | None = None

    def on(self, features: Tensor, labels: Tensor) -> Self:
        """Task of clients whose examples are numbers (`NUMBER`) of examples in a shared pool.

        Args:
            features: ``(M, ...)`` features of the pool.
            labels: ``(M, ...)`` labels of the pool.
        """
        made = copy.copy(self)
        made._pool = (features, labels)
        return made

    def fields(self, examples: Parameters, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """Inputs ``(N, ...)`` and labels ``(N, ...)`` of a client's examples.

        Args:
            examples: fields of the examples.
            dtype: of inputs that are uint8 images or float32, for a model in float64.
        """
        if self._pool is None:
            inputs, labels = (examples[name] for name in self.names)
        else:
            inputs, labels = (values[examples[NUMBER]] for values in self._pool)
        if inputs.dtype == torch.uint8:
            return inputs.to(dtype).div(255), labels
        return inputs.to(dtype) if dtype == torch.float64 and inputs.is_floating_point() else inputs, labels

    def loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        inputs, labels = self.fields(examples, next(iter(parameters.values())).dtype)
        network = self._own_network
        mask_batches(network, mask)
        draw_dropout(network, examples[DRAWS] if self.random else None)
        losses = self.criterion(functional_call(network, parameters, (inputs,)), labels, reduction="none")
        each = losses.flatten(1).mean(1) if losses.dim() > 1 else losses
        return (each * mask).sum() / mask.sum().clamp(min=1)

    def record_losses(self, parameters: Parameters, inputs: Tensor, labels: Tensor) -> Tensor:
        """``(M,)`` losses of single records without dropout, of a network without batch norm.

        Args:
            parameters: one model, ``shape`` each.
            inputs: ``(M, *shape)`` records.
            labels: ``(M, ...)`` their labels.
        """
        network = self._own_network
        mask_batches(network, None)
        draw_dropout(network, None)
        losses = self.criterion(functional_call(network, dict(parameters), (inputs,)), labels, reduction="none")
        return losses.flatten(1).mean(1) if losses.dim() > 1 else losses

    def fast(self) -> Gradients | None:
        return None if self._chain is None else ChainGradients(self._chain, self.fields)

    @property
    def _own_network(self) -> nn.Module:
        """Copy of the calling thread, because `functional_call` swaps the parameters of the module while it runs."""
        if not hasattr(self._local, "network"):
            self._local.network = copy.deepcopy(self.network)
        network: nn.Module = self._local.network
        return network
