"""The loss of a classifier, from any network that is written for one client."""

import copy
import threading

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from modules.engine.batches import DRAWS
from modules.engine.fast.buffer_pool import BufferPool
from modules.engine.fast.manual_backward import Collected, Descent, chain_loss, chain_of
from modules.engine.tasks import Parameters
from modules.nets.batch_norm import mask_batches
from modules.nets.dropout import Dropout, draw_dropout


class ClassificationTask:
    """Mean cross-entropy of a network over a client's examples ``image`` and ``label``; random where it drops out.

    Args:
        network: maps ``(N, ...)`` inputs to ``(N, classes)`` logits; its own parameters are only a template.
    """

    batched_by_hand = False

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.random = any(isinstance(layer, Dropout) and layer.probability > 0 for layer in network.modules())
        self._chain = chain_of(network)
        self._local = threading.local()

    @property
    def _own_network(self) -> nn.Module:
        """The calling thread's copy: `functional_call` puts the parameters into the module while it runs."""
        if not hasattr(self._local, "network"):
            self._local.network = copy.deepcopy(self.network)
        network: nn.Module = self._local.network
        return network

    def client_loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """See `modules.engine.tasks.Task`."""
        images, labels = self.images_and_labels(examples)
        network = self._own_network
        mask_batches(network, mask)
        draw_dropout(network, examples[DRAWS] if self.random else None)
        logits = functional_call(network, parameters, (images,))
        losses = functional.cross_entropy(logits, labels, reduction="none")
        return (losses * mask).sum() / mask.sum().clamp(min=1)

    def images_and_labels(self, examples: Parameters) -> tuple[Tensor, Tensor]:
        """Inputs ``(N, ...)`` and classes ``(N,)`` of a client's examples."""
        return examples["image"], examples["label"]

    @property
    def written(self) -> bool:
        """See `modules.engine.tasks.WrittenTask`; networks that are chains of common layers are."""
        return self._chain is not None

    def client_gradient(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> tuple[Tensor, Parameters]:
        """See `modules.engine.tasks.WrittenTask`."""
        sink = Collected()
        loss = chain_loss(self._chain or [], parameters, *self.images_and_labels(examples), mask, sink)
        return loss, sink.gradients

    def client_descent(self, step: Descent, examples: Parameters, mask: Tensor) -> Tensor:
        """See `modules.engine.tasks.WrittenTask`."""
        return chain_loss(self._chain or [], step.before, *self.images_and_labels(examples), mask, step)

    def client_losses(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """See `modules.engine.tasks.Task`; convolutions become grouped ones, which GPUs like and CPUs do not."""
        losses: Tensor = torch.vmap(self.client_loss, randomness="different")(parameters, examples, mask)
        return losses

    def client_gradients(self, parameters: Parameters, examples: Parameters, mask: Tensor, buffers: BufferPool) -> None:
        """See `modules.engine.tasks.Task`: left to autograd."""
        return
