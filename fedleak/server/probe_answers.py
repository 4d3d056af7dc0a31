"""Clients' answers to repeated calls with item vectors that the server chooses.

An answer is one local update (R = 1, or one epoch E = 1) on the item vectors that the server sent, with the noise of
Equation 3. The server keeps the sum and the number of the messages about each item.

References:
    [London20], Protocols 1 to 3 and Equations 1 to 3.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedleak.client.margin_losses import LossName, check_assumption_2, margin_loss
from fedleak.client.matrix_factorization import clip_factors
from fedleak.core.errors import require

Protocol = Literal["batches", "epochs"]


@dataclass(frozen=True, kw_only=True)
class Answering:
    """Public parameters of the clients' answers.

    Attributes:
        loss: loss of the margin.
        learning_rate: local learning rate, alpha.
        batch: batch size B.
        protocol: ``batches``: one batch, drawn anew (Protocol 1, R = 1); ``epochs``: all labels (Protocol 3, E = 1).
        noise: standard deviation of the noise on each entry of a changed row.
        clip: L2 norm to which each item's gradient is clipped, None for no clipping.
    """

    loss: LossName = "log"
    learning_rate: float = 0.1
    batch: int = 10
    protocol: Protocol = "batches"
    noise: float = 0.0
    clip: float | None = None


@dataclass
class Probed:
    """Clients under attack and their summed messages, float64.

    Attributes:
        users: ``(V, d)`` current private vectors.
        items: ``(V, N)`` labelled items, padded with -1.
        signs: ``(V, N)`` labels +1 and -1, 0 where padded.
        sums: ``(V, N, d)`` summed messages about each item.
        updates: ``(V, N)`` number of messages about each item.
    """

    users: Tensor
    items: Tensor
    signs: Tensor
    sums: Tensor
    updates: Tensor

    @classmethod
    def start(cls, users: Tensor, items: Tensor, labels: Tensor) -> "Probed":
        """Clients before the first call; labels are 0 or 1."""
        signs = (2 * labels.double() - 1) * (items >= 0)
        sums = torch.zeros(*items.shape, users.shape[1], dtype=torch.float64)
        return cls(users.double().clone(), items, signs, sums, torch.zeros_like(signs))

    @property
    def counts(self) -> Tensor:
        """``(V,)`` number of labels."""
        return (self.items >= 0).sum(1)


def check_batches(clients: Probed, how: Answering) -> None:
    """Checks that every client can answer.

    Raises:
        InputError: a client has no labels, or fewer than a batch; or the loss is flat at 0.
    """
    check_assumption_2(how.loss)
    least = how.batch if how.protocol == "batches" else 1
    require(
        not bool((clients.counts < least).any()),
        f"clients with at least {least} labels",
        f"a client with {int(clients.counts.min())}",
        "Set a smaller batch, or leave such clients out.",
    )


def answer(clients: Probed, sent: Tensor, how: Answering, *, interactions: int, generator: torch.Generator) -> None:
    """Answers to arbitrary item vectors, one call after another; the private vectors change with each.

    The clients, changed in place, get the item vectors ``sent (I, d)`` in every call. Only of Protocol 1, because each
    batch of an epoch changes the private vector.
    """
    check_batches(clients, how)
    require(how.protocol == "batches", "protocol batches with items other than zero", how.protocol, "Send zeros.")
    table = sent.double()
    is_padding = clients.items < 0
    for _ in range(interactions):
        # A random batch without replacement: the items of the largest random keys.
        keys = torch.rand(clients.items.shape, generator=generator).masked_fill(is_padding, -1.0)
        batch = keys.topk(how.batch, dim=1).indices
        messages = _update(clients, table[clients.items.gather(1, batch)], batch, how)
        # Only rows that changed are sent, with noise (Equation 3).
        noise = torch.randn(messages.shape, generator=generator, dtype=torch.float64)
        is_changed = messages.abs().sum(2, keepdim=True) > 0
        index = batch[..., None].expand_as(messages)
        clients.sums.scatter_add_(1, index, (messages + how.noise * noise) * is_changed)
        clients.updates.scatter_add_(1, batch, is_changed[..., 0].double())


def _update(clients: Probed, items: Tensor, batch: Tensor, how: Answering) -> Tensor:
    """Step on a batch (Equations 1 and 2): updates the private vectors, returns the items' changes ``(V, B, d)``."""
    signs = clients.signs.gather(1, batch)
    # Derivative of the loss l(y u.v) by the score u.v.
    margins = signs * torch.einsum("vbd,vd->vb", items, clients.users)
    slopes = margin_loss(how.loss).slope(margins) * signs
    # By an item's vector it is the slope times u, clipped; by u, the mean over the batch of the slope times v. Both
    # are at the vectors before the step.
    clipped_slopes = slopes * clip_factors(slopes, clients.users, how.clip)
    item_gradients = clipped_slopes[..., None] * clients.users[:, None]
    user_gradient = torch.einsum("vb,vbd->vd", slopes, items)
    clients.users = clients.users - how.learning_rate * user_gradient / batch.shape[1]
    return -how.learning_rate * item_gradients


def answer_zeros(clients: Probed, how: Answering, *, interactions: Tensor, generator: torch.Generator) -> None:
    """Answers to all-zero item vectors, any number of calls at once, with exactly the distribution of `answer`.

    The clients, changed in place, get ``interactions (V,)`` further calls. With zeros the private vector does not
    change, and every message about item i is ``-alpha l'(0) y_i u`` plus noise: the sum of n messages is n times that
    plus noise of n times the variance, so only n has to be drawn.
    """
    check_batches(clients, how)
    calls = interactions.double()
    # Number n of messages about each item: in each epoch one, or one for each batch that has it.
    if how.protocol == "epochs":
        messages = calls[:, None] * (clients.items >= 0)
    else:
        messages = batch_memberships(clients.counts, how.batch, calls, clients.items.shape[1], generator)
    # n times -alpha l'(0) y_i u, and noise of n times the variance.
    slopes = margin_loss(how.loss).slope_at_zero * clients.signs
    step = -how.learning_rate * slopes * clip_factors(slopes, clients.users, how.clip)
    noise = torch.randn(clients.sums.shape, generator=generator, dtype=torch.float64)
    clients.sums += (messages * step)[..., None] * clients.users[:, None]
    clients.sums += how.noise * messages.sqrt()[..., None] * noise
    clients.updates += messages


def batch_memberships(sizes: Tensor, batch: int, draws: Tensor, width: int, generator: torch.Generator) -> Tensor:
    """``(V, width)`` float64 number of independent batches that contain each item, each drawn without replacement.

    Clients have ``sizes (V,)`` items, at least a batch, and ``draws (V,)`` batches; each row sums to ``batch * draws``.
    Items are processed in order: a batch with r free places takes the item with probability r over the number of
    remaining items. Batches differ only in their free places, so the cost does not depend on their number.
    """
    free_places = torch.arange(batch + 1, dtype=torch.float64)
    # How many batches have r free places, for each r; all are empty at first.
    batches = torch.zeros(len(sizes), batch + 1, dtype=torch.float64)
    batches[:, batch] = draws
    memberships = torch.zeros(len(sizes), width, dtype=torch.float64)
    for item in range(width):
        remaining_items = (sizes - item).clamp(min=1).double()[:, None]
        chance = (free_places / remaining_items).clamp(max=1.0) * (item < sizes)[:, None]
        taking = torch.binomial(batches, chance.expand_as(batches).contiguous(), generator=generator)
        memberships[:, item] = taking.sum(1)
        # A batch that took the item has one free place less.
        batches = batches - taking
        batches[:, :-1] += taking[:, 1:]
    return memberships
