"""Networks for re-identification and Siamese matching.

References:
    [Orekondy18], section 4.4 and figure 13.
"""

from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from fedleak.modules.attackers.trainer import empty_batches, own_share, world_size

HIDDEN = 128
_BATCH = 64
"""Pairs in a batch of the Siamese network."""


class ReidentificationNet(LightningModule):
    """FC-128, ReLU, dropout, FC-U; trained by SGD at 0.01 with momentum 0.9 and decay 1e-6.

    SGD changes the first layer's weights only within the span of the training vectors, so the network is given
    coordinates in this span.

    Args:
        vectors: ``(P, D)`` training vectors.
        labels: ``(P,)`` int64.
        users: number of classes U.
        fan_in: length of the original vectors, for the initial weights' distribution.
        generator: source of all draws.
    """

    def __init__(self, vectors: Tensor, labels: Tensor, *, users: int, fan_in: int, generator: torch.Generator) -> None:
        super().__init__()
        self.data = TensorDataset(vectors, labels)
        self.generator = generator
        self.hidden = empty_linear(vectors.shape[1], HIDDEN)
        self.output = empty_linear(HIDDEN, users)
        glorot_(self.hidden, fan_in, generator)
        glorot_(self.output, HIDDEN, generator)

    def forward(self, vectors: Tensor) -> Tensor:
        """``(B, D)`` -> logits ``(B, U)``."""
        logits: Tensor = self.output(self.hidden(vectors).relu())
        return logits

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """Mean cross-entropy, of this process's share of the batch."""
        vectors, labels = batch
        share = own_share(self)
        hidden = self.hidden(vectors[share]).relu()
        draws = _draws(len(labels), self.generator)[share]
        logits = self.output(dropped(hidden, 0.2, draws))
        # The sum over this process's share, so that the average over processes is the mean over the batch.
        return cross_entropy(logits, labels[share], reduction="sum") * world_size(self) / len(labels)

    def configure_optimizers(self) -> Any:
        """Decay as in the paper's library: the learning rate is multiplied by 1 / (1 + decay * step)."""
        optimizer = torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 1e-6 * step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def train_dataloader(self) -> DataLoader[Any]:
        """Random mini-batches of 32, the default of the paper's library."""
        sampler = BatchSampler(RandomSampler(self.data, generator=self.generator), 32, drop_last=False)
        # Without its own generator, the loader would use the global one.
        return DataLoader(self.data, sampler=sampler, batch_size=None, generator=torch.Generator())


class SiameseNet(LightningModule):
    """Twice FC-128, ReLU, dropout, FC-128, ReLU; absolute difference; FC-1. RMSProp at 0.001, cross-entropy.

    Half of the random pairs in a batch are of one user, half of two.

    Args:
        vectors: ``(P, D)`` messages.
        labels: ``(P,)`` their users.
        steps: number of batches.
        generator: source of all draws.
    """

    def __init__(self, vectors: Tensor, labels: Tensor, *, steps: int, generator: torch.Generator) -> None:
        super().__init__()
        self.vectors = vectors
        self.labels = labels
        self.steps = steps
        self.generator = generator
        self.first = empty_linear(vectors.shape[1], HIDDEN)
        self.second = empty_linear(HIDDEN, HIDDEN)
        self.output = empty_linear(HIDDEN, 1)
        for layer in (self.first, self.second, self.output):
            glorot_(layer, layer.in_features, generator)
        # Pairs of different messages of one user.
        self.same = labels[:, None] == labels
        self.same.fill_diagonal_(False)

    def embed(self, vectors: Tensor, draws: Tensor | None = None) -> Tensor:
        """``(B, D)`` -> ``(B, 128)``, with dropout by ``draws (B, 128)``."""
        active = self.first(vectors).relu()
        if draws is not None:
            active = dropped(active, 0.1, draws)
        embedded: Tensor = self.second(active).relu()
        return embedded

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Embeddings ``(M, 128)`` of both messages -> logits ``(M,)``."""
        logits: Tensor = self.output((left - right).abs())[:, 0]
        return logits

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        """Mean cross-entropy of this process's share of a batch of pairs."""
        left, right = self._draw()
        # A message of several pairs is embedded once, with one dropout; each process embeds those of its own pairs.
        used, pair_position = torch.unique(torch.stack([left, right]), return_inverse=True)
        draws = _draws(len(used), self.generator)
        share = own_share(self)
        mine, pair_position = torch.unique(pair_position[:, share], return_inverse=True)
        embedded = self.embed(self.vectors[used[mine]].to(self.device), draws[mine])
        first, second = embedded[pair_position.to(self.device)]
        truth = (self.labels[left] == self.labels[right]).float()[share].to(self.device)
        return binary_cross_entropy_with_logits(self(first, second), truth)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """RMSProp, with the decay and epsilon of the paper's library."""
        return torch.optim.RMSprop(self.parameters(), lr=1e-3, alpha=0.9, eps=1e-7)

    def train_dataloader(self) -> DataLoader[Tensor]:
        return empty_batches(self.steps)

    def _draw(self) -> tuple[Tensor, Tensor]:
        able = self.same.any(1).nonzero().flatten()
        left = able[torch.randint(len(able), (_BATCH,), generator=self.generator)]
        # The first half of the pairs has a second message of the same user, the other half one of another user.
        match = torch.arange(_BATCH) < _BATCH // 2
        different = self.labels[left][:, None] != self.labels
        choice = torch.where(match[:, None], self.same[left], different)
        right = torch.multinomial(choice.float(), 1, generator=self.generator)[:, 0]
        return left, right


def empty_linear(inputs: int, outputs: int) -> nn.Linear:
    """A layer with uninitialised weights; torch's initialisation would use the global generator."""
    return nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")


@torch.no_grad()
def glorot_(layer: nn.Linear, fan_in: int, generator: torch.Generator) -> None:
    """Glorot uniform weights and zero bias, as in the paper's library."""
    bound = (6 / (fan_in + layer.out_features)) ** 0.5
    layer.weight.uniform_(-bound, bound, generator=generator)
    layer.bias.zero_()


def _draws(rows: int, generator: torch.Generator) -> Tensor:
    """``(rows, 128)`` uniform numbers for dropout; all processes draw those of the whole batch."""
    return torch.rand(rows, HIDDEN, generator=generator)


def dropped(values: Tensor, rate: float, draws: Tensor) -> Tensor:
    """Dropout of the numbers whose draw is below `rate`; the others are rescaled."""
    return values * (draws >= rate).to(values) / (1 - rate)
