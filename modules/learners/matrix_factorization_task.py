"""The local steps of federated matrix factorisation (London 2020, Protocols 1 and 3, Equations 1 and 2)."""

import torch
from torch import Tensor

from modules.engine.fast.buffer_pool import BufferPool
from modules.engine.tasks import POSITION, Parameters
from modules.learners.fncf_task import USER_EMBEDDING
from protocol.margin_losses import LossName, margin_loss
from protocol.view import ITEM_EMBEDDING


class MatrixFactorizationTask:
    """Linear preferences ``sgn(u.v)``; labels in [0, 1] stand for y in [-1, 1].

    In a step, an item of the batch moves along its own gradient, and the user's vector along the mean of theirs.

    Args:
        loss: the loss of the margin ``y u.v``.
        clip: L2 norm to which the gradient of each item's vector is clipped, None for no clipping.
    """

    batched_by_hand = True
    random = False

    def __init__(self, *, loss: LossName = "log", clip: float | None = None) -> None:
        self.loss = margin_loss(loss)
        self.clip = clip

    def client_losses(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """See `modules.engine.tasks.Task`: of the value of a mean loss, with the gradients that the steps take."""
        users, items = parameters[USER_EMBEDDING], parameters[ITEM_EMBEDDING]
        if POSITION in examples:
            items = items.gather(1, _rows(examples[POSITION], items))
        signs = 2 * examples["label"] - 1
        for_users = self.loss.value(signs * _scores(users, items.detach())) * mask
        for_items = self.loss.value(signs * _scores(users.detach(), items)) * mask
        if self.clip is not None:
            slopes = self.loss.slope((signs * _scores(users, items)).detach()) * signs.detach()
            for_items = for_items * self._clip_factors(slopes, users.detach())
        extra = for_items.sum(1)
        return for_users.sum(1) / mask.sum(1).clamp(min=1) + extra - extra.detach()

    def client_loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        stacked = {name: value[None] for name, value in parameters.items()}
        return self.client_losses(stacked, {name: value[None] for name, value in examples.items()}, mask[None])[0]

    def client_gradients(
        self, parameters: Parameters, examples: Parameters, mask: Tensor, buffers: BufferPool
    ) -> tuple[Tensor, Parameters] | None:
        """See `modules.engine.tasks.Task`; Equations 1 and 2."""
        users, table = parameters[USER_EMBEDDING], parameters[ITEM_EMBEDDING]
        index = _rows(examples[POSITION], table) if POSITION in examples else None
        items = table if index is None else table.gather(1, index)
        signs, size = 2 * examples["label"] - 1, mask.sum(1, keepdim=True).clamp(min=1)
        margins = signs * _scores(users, items)
        slopes = self.loss.slope(margins) * signs * mask
        of_users = torch.einsum("cn,cnd->cd", slopes, items) / size
        if self.clip is not None:
            slopes = slopes * self._clip_factors(slopes, users)
        of_items = slopes[..., None] * users[:, None]
        if index is not None:
            of_items = torch.zeros_like(table).scatter_add_(1, index, of_items)
        losses = (self.loss.value(margins) * mask).sum(1) / size[:, 0]
        return losses, {USER_EMBEDDING: of_users, ITEM_EMBEDDING: of_items}

    def _clip_factors(self, slopes: Tensor, users: Tensor) -> Tensor:
        """``(C, N)`` factors in [0, 1] that bring the items' gradients ``slope u`` to at most `clip`."""
        norms = slopes.abs() * users.norm(dim=1, keepdim=True)
        return (self.clip / norms.clamp(min=1e-30)).clamp(max=1.0) if self.clip else torch.ones_like(norms)


def _scores(users: Tensor, items: Tensor) -> Tensor:
    return torch.einsum("cnd,cd->cn", items, users)


def _rows(position: Tensor, items: Tensor) -> Tensor:
    return position[..., None].expand(-1, -1, items.shape[2])
