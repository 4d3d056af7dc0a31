"""Networks that learn whose messages are whose: re-identification and Siamese matching (section 4.4, figure 13)."""

from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from modules.attackers.trainer import own_share, world_size

HIDDEN = 128
_BATCH = 64
"""Pairs in a batch of the Siamese network."""


class ReidentificationNet(LightningModule):
    """FC-128, ReLU, dropout, FC-U; trained by SGD at 0.01 with momentum 0.9 and decay 1e-6.

    SGD keeps the first layer's weights within their first values plus the span of the training vectors, so the network
    may be given coordinates in that span; what it would make of the rest of a vector is only its random first values.

    Args:
        vectors: ``(P, D)`` to learn from.
        labels: ``(P,)`` int64.
        users: classes U.
        whole: numbers of a vector for which these are coordinates; the first weights have the law of a layer that
            takes so many.
        generator: source of all draws.
    """

    def __init__(self, vectors: Tensor, labels: Tensor, *, users: int, whole: int, generator: torch.Generator) -> None:
        super().__init__()
        self.data, self.generator = TensorDataset(vectors, labels), generator
        self.hidden, self.output = empty_linear(vectors.shape[1], HIDDEN), empty_linear(HIDDEN, users)
        glorot_(self.hidden, whole, generator)
        glorot_(self.output, HIDDEN, generator)

    def forward(self, vectors: Tensor) -> Tensor:
        """``(B, D)`` -> logits ``(B, U)``."""
        logits: Tensor = self.output(self.hidden(vectors).relu())
        return logits

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """Mean cross-entropy, of this process's share of the batch."""
        vectors, labels = batch
        own = own_share(self)
        active = dropped(self.hidden(vectors[own]).relu(), 0.2, _draws(len(labels), self.generator)[own])
        logits = self.output(active)
        return cross_entropy(logits, labels[own], reduction="sum") * world_size(self) / len(labels)

    def configure_optimizers(self) -> Any:
        """Decay as the paper's library has it: the learning rate falls as 1 / (1 + decay * step)."""
        optimizer = torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 1e-6 * step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def train_dataloader(self) -> DataLoader[Any]:
        """Mini-batches of 32, the default of the paper's library, in a random order; rows are taken together."""
        sampler = BatchSampler(RandomSampler(self.data, generator=self.generator), 32, drop_last=False)
        # Without a generator of its own the loader draws from the global one.
        return DataLoader(self.data, sampler=sampler, batch_size=None, generator=torch.Generator())


class SiameseNet(LightningModule):
    """Twice FC-128, ReLU, dropout, FC-128, ReLU; the absolute difference; FC-1. RMSProp at 0.001, cross-entropy.

    A batch holds as many pairs of one user as of two, drawn anew.

    Args:
        vectors: ``(P, D)`` messages to learn from.
        labels: ``(P,)`` their users.
        steps: batches.
        generator: source of all draws.
    """

    def __init__(self, vectors: Tensor, labels: Tensor, *, steps: int, generator: torch.Generator) -> None:
        super().__init__()
        self.vectors, self.labels, self.steps, self.generator = vectors, labels, steps, generator
        self.first, self.second = empty_linear(vectors.shape[1], HIDDEN), empty_linear(HIDDEN, HIDDEN)
        self.output = empty_linear(HIDDEN, 1)
        for layer in (self.first, self.second, self.output):
            glorot_(layer, layer.in_features, generator)
        self.same = labels[:, None] == labels
        self.same.fill_diagonal_(False)

    def embed(self, vectors: Tensor, draws: Tensor | None = None) -> Tensor:
        """``(B, D)`` -> ``(B, 128)``, with dropout by ``draws (B, 128)``."""
        active = self.first(vectors).relu()
        active = active if draws is None else dropped(active, 0.1, draws)
        embedded: Tensor = self.second(active).relu()
        return embedded

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Embeddings ``(M, 128)`` of both sides -> logits ``(M,)``."""
        logits: Tensor = self.output((left - right).abs())[:, 0]
        return logits

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        """Mean cross-entropy of this process's share of a batch of pairs."""
        left, right = self._draw()
        used, place = torch.unique(torch.stack([left, right]), return_inverse=True)
        draws = _draws(len(used), self.generator)
        mine, place = torch.unique(place[:, own_share(self)], return_inverse=True)
        first, second = self.embed(self.vectors[used[mine]].to(self.device), draws[mine])[place.to(self.device)]
        truth = (self.labels[left] == self.labels[right]).float()[own_share(self)].to(self.device)
        return binary_cross_entropy_with_logits(self(first, second), truth)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """RMSProp, with the decay and epsilon of the paper's library."""
        return torch.optim.RMSprop(self.parameters(), lr=1e-3, alpha=0.9, eps=1e-7)

    def train_dataloader(self) -> DataLoader[Tensor]:
        """Empty batches, one per step: pairs are drawn from all messages."""
        steps: list[Tensor] = [torch.zeros(())] * self.steps
        return DataLoader(steps, batch_size=None, generator=torch.Generator())  # type: ignore[arg-type]

    def _draw(self) -> tuple[Tensor, Tensor]:
        able = self.same.any(1).nonzero().flatten()
        left = able[torch.randint(len(able), (_BATCH,), generator=self.generator)]
        match = torch.arange(_BATCH) < _BATCH // 2
        choice = torch.where(match[:, None], self.same[left], self.labels[left][:, None] != self.labels)
        return left, torch.multinomial(choice.float(), 1, generator=self.generator)[:, 0]


def empty_linear(inputs: int, outputs: int) -> nn.Linear:
    """A layer whose weights are to be drawn: torch's own drawing would take from the global generator."""
    return nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")


@torch.no_grad()
def glorot_(layer: nn.Linear, fan_in: int, generator: torch.Generator) -> None:
    """First weights as the paper's library draws them: uniform, by both widths; no bias."""
    bound = (6 / (fan_in + layer.out_features)) ** 0.5
    layer.weight.uniform_(-bound, bound, generator=generator)
    layer.bias.zero_()


def _draws(rows: int, generator: torch.Generator) -> Tensor:
    """``(rows, 128)`` uniform numbers for dropout; all processes draw those of the whole batch."""
    return torch.rand(rows, HIDDEN, generator=generator)


def dropped(values: Tensor, rate: float, draws: Tensor) -> Tensor:
    """Dropout: a number whose draw is below `rate` is zero, the others are larger by as much."""
    return values * (draws >= rate).to(values) / (1 - rate)
