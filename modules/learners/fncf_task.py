"""The loss of federated neural collaborative filtering, as the engine trains it and as the server simulates it."""

import torch
from torch import Tensor
from torch.nn import functional

from modules.engine.fast.buffer_pool import BufferPool
from modules.engine.fast.ncf_gradient import ncf_loss_gradients
from modules.engine.tasks import POSITION, Parameters
from modules.nets.ncf import ncf_logits
from protocol.view import ITEM_EMBEDDING

USER_EMBEDDING = "user_embedding"
"""Name of the private user vector."""


class InteractionTask:
    """Mean binary cross-entropy over a client's items (RAIFLE, section V.A; labels may be soft)."""

    batched_by_hand = True
    random = False

    def client_losses(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """See `modules.engine.tasks.Task`; example k is row k of the client's item table unless in a mini-batch."""
        items = parameters[ITEM_EMBEDDING]
        if POSITION in examples:
            index = examples[POSITION][..., None].expand(-1, -1, items.shape[2])
            items = items.gather(1, index)
        logits = ncf_logits(parameters, parameters[USER_EMBEDDING], items)
        losses = functional.binary_cross_entropy_with_logits(logits, examples["label"], reduction="none")
        return (losses * mask).sum(1) / mask.sum(1).clamp(min=1)

    def client_loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        stacked = {name: value[None] for name, value in parameters.items()}
        return self.client_losses(stacked, {name: value[None] for name, value in examples.items()}, mask[None])[0]

    def client_gradients(
        self, parameters: Parameters, examples: Parameters, mask: Tensor, buffers: BufferPool
    ) -> tuple[Tensor, Parameters] | None:
        """See `modules.engine.tasks.Task`; full batches only."""
        if POSITION in examples:
            return None
        users, items = parameters[USER_EMBEDDING], parameters[ITEM_EMBEDDING]
        losses, gradients, of_users, of_items = ncf_loss_gradients(
            parameters, users, items, examples["label"], mask, buffers
        )
        return losses, {**gradients, USER_EMBEDDING: of_users, ITEM_EMBEDDING: of_items}


def initial_users(clients: int, dim: int, generator: torch.Generator) -> Tensor:
    """Private user vectors before the first round, ``(clients, dim)`` from N(0, 1)."""
    return torch.randn(clients, dim, generator=generator)
