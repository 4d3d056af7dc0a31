"""Clients of matrix factorisation with public item vectors and private user vectors.

References:
    [London20], Protocols 1 and 3 and Equations 1 to 3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.client.algorithm import Shapes
from fedleak.client.engine.fast.gradients import Gradients, Parameters
from fedleak.client.engine.fast.memory import BufferPool
from fedleak.client.engine.task import POSITION
from fedleak.client.margin_losses import LossName, MarginLoss, margin_loss
from fedleak.client.recommendation import USER_EMBEDDING, RecommenderAlgorithm
from fedleak.core.ranges import PositiveFloat, PositiveInt
from fedleak.core.view import ITEM_EMBEDDING


@dataclass(frozen=True, kw_only=True)
class MFAlgorithm(RecommenderAlgorithm):
    """Clients whose loss of an item is one of the margin ``y u.v``; labels in [0, 1] stand for y in [-1, 1].

    In a step, each item of the batch moves along its own gradient, and the user vector along the mean gradient.

    Attributes:
        dim: length of user and item vectors.
        margin_loss: loss of the margin.
        clip: L2 norm to which the gradient of each item's vector is clipped, None for no clipping.
    """

    name: ClassVar[str] = "mf"
    recorded_as: ClassVar[Mapping[str, str]] = {"margin_loss": "loss"}

    dim: PositiveInt
    margin_loss: LossName
    clip: PositiveFloat | None = None

    def __post_init__(self) -> None:
        margin_loss(self.margin_loss)

    @property
    def user_dim(self) -> int:
        """Length of a client's private vector."""
        return self.dim

    @property
    def margin(self) -> MarginLoss:
        """The loss as a function of the margin."""
        return margin_loss(self.margin_loss)

    @property
    def slope_at_zero(self) -> float:
        """Derivative of the loss at margin 0."""
        return self.margin.slope_at_zero

    def network_shapes(self, recorded: Shapes) -> dict[str, tuple[int, ...]]:
        return {ITEM_EMBEDDING: (recorded[ITEM_EMBEDDING][0], self.dim)}

    def stacked_loss(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> Tensor:
        """Mean loss whose gradients are those of Protocols 1 and 3, which are not the gradients of one mean."""
        users = parameters[USER_EMBEDDING]
        items = parameters[ITEM_EMBEDDING]
        if POSITION in examples:
            items = items.gather(1, _rows(examples[POSITION], items))
        signs = 2 * examples["label"] - 1
        # Users and items have losses of their own, so that each one's gradient can be scaled as the protocol says.
        for_users = self.margin.value(signs * _scores(users, items.detach())) * mask
        for_items = self.margin.value(signs * _scores(users.detach(), items)) * mask
        if self.clip is not None:
            margins = (signs * _scores(users, items)).detach()
            slopes = self.margin.slope(margins) * signs.detach()
            for_items = for_items * clip_factors(slopes, users.detach(), self.clip)
        # The user vector descends the mean over items, each item its own loss: value of the mean, gradient of the sum.
        extra = for_items.sum(1)
        of_users = for_users.sum(1) / mask.sum(1).clamp(min=1)
        return of_users + extra - extra.detach()

    def fast(self) -> Gradients:
        return _Equations1And2(self)


def clip_factors(slopes: Tensor, users: Tensor, clip: float | None) -> Tensor:
    """``(C, N)`` factors in [0, 1] that clip the L2 norm of the items' gradients ``slope u``; None for ones."""
    if clip is None:
        return torch.ones_like(slopes)
    # The gradient by an item's vector is slope times u, so its norm is |slope| |u|.
    norms: Tensor = slopes.abs() * users.norm(dim=1, keepdim=True)
    return (clip / norms.clamp(min=1e-30)).clamp(max=1.0)


def _scores(users: Tensor, items: Tensor) -> Tensor:
    return torch.einsum("cnd,cd->cn", items, users)


def _rows(position: Tensor, items: Tensor) -> Tensor:
    return position[..., None].expand(-1, -1, items.shape[2])


class _Equations1And2(Gradients):
    def __init__(self, algorithm: MFAlgorithm) -> None:
        self.algorithm = algorithm

    def stacked(
        self, parameters: Parameters, examples: Parameters, mask: Tensor, buffers: BufferPool
    ) -> tuple[Tensor, Parameters]:
        margin = self.algorithm.margin
        clip = self.algorithm.clip
        users = parameters[USER_EMBEDDING]
        table = parameters[ITEM_EMBEDDING]
        index = _rows(examples[POSITION], table) if POSITION in examples else None
        items = table if index is None else table.gather(1, index)
        signs = 2 * examples["label"] - 1
        size = mask.sum(1, keepdim=True).clamp(min=1)
        # z = y u.v, so the gradient by u is l'(z) y v, and by v it is l'(z) y u.
        margins = signs * _scores(users, items)
        slopes = margin.slope(margins) * signs * mask
        of_users = torch.einsum("cn,cnd->cd", slopes, items) / size
        slopes = slopes * clip_factors(slopes, users, clip)
        of_items = slopes[..., None] * users[:, None]
        if index is not None:
            of_items = torch.zeros_like(table).scatter_add_(1, index, of_items)
        losses = (margin.value(margins) * mask).sum(1) / size[:, 0]
        return losses, {USER_EMBEDDING: of_users, ITEM_EMBEDDING: of_items}
