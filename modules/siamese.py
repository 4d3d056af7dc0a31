"""The paper's Siamese network for matching (section 4.4 and figure 13 b), and the attack that asks it."""

from collections.abc import Sequence

import torch
from lightning import LightningModule
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader

from attacks.base import Attack, ServerView, ThreatModel, ViewError
from attacks.deanonymization.estimates import PAIRS, MatchingEstimate, asked_pairs
from attacks.deanonymization.messages import USERS, known_view, read_messages, unit
from attacks.deanonymization.published import REIDENTIFICATION
from modules.attack_trainer import fit_quietly
from modules.random_batches import dropped
from modules.reidentification import HIDDEN, empty_linear, glorot_

_DROPOUT = 0.1
_LEARNING_RATE, _DECAY, _EPS = 1e-3, 0.9, 1e-7
"""RMSProp; its decay and epsilon are those of the library that the paper used."""
_BATCH = 64


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

    def embed(self, vectors: Tensor) -> Tensor:
        """``(B, D)`` -> ``(B, 128)``."""
        active = self.first(vectors).relu()
        active = dropped(active, _DROPOUT, self.generator) if self.training else active
        embedded: Tensor = self.second(active).relu()
        return embedded

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Embeddings ``(M, 128)`` of both sides -> logits ``(M,)``."""
        logits: Tensor = self.output((left - right).abs())[:, 0]
        return logits

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        """Mean cross-entropy of a batch of pairs."""
        left, right = self._draw()
        used, place = torch.unique(torch.cat([left, right]), return_inverse=True)
        embedded = self.embed(self.vectors[used].to(self.device))[place.to(self.device)]
        truth = (self.labels[left] == self.labels[right]).float().to(self.device)
        return binary_cross_entropy_with_logits(self(embedded[: len(left)], embedded[len(left) :]), truth)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """RMSProp."""
        return torch.optim.RMSprop(self.parameters(), lr=_LEARNING_RATE, alpha=_DECAY, eps=_EPS)

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


class MatchingSiamese(Attack):
    """Do two messages come from one user? A metric that is learned from the known devices' (section 4.4, (iii)).

    Threat model: as of re-identification; the question is which of given pairs of messages match. Users of whom
    nothing is known may be among them.

    Args:
        layers: whose deltas are taken; None for all that are recorded.
        steps: batches of 64 pairs; the paper prints none.
        accelerator: where to run, as Lightning names it.
    """

    name = "matching-siamese"
    threat_model = ThreatModel(
        sees=REIDENTIFICATION.sees, knows=REIDENTIFICATION.knows, needs=("deltas", "known", f"auxiliary:{PAIRS}")
    )
    estimates = MatchingEstimate

    def __init__(self, *, layers: Sequence[str] | None = None, steps: int = 1000, accelerator: str = "auto") -> None:
        if steps < 1:
            raise ValueError(f"expected steps of at least 1, got {steps}")
        self.layers = layers
        self.steps = steps
        self.accelerator = accelerator

    def run(self, view: ServerView, *, generator: torch.Generator) -> MatchingEstimate:
        """See `Attack.run`."""
        messages = read_messages(view, self.layers)
        labels = torch.unique(known_view(view).auxiliary[USERS], return_inverse=True)[1]
        counts = labels.bincount()
        if int((counts > 0).sum()) < 2 or int(counts.max()) < 2:
            raise ViewError("expected two known users, one of them with two messages, got fewer")
        known = unit(messages.known)
        net = SiameseNet(known, labels, steps=self.steps, generator=generator)
        fit_quietly(net, accelerator=self.accelerator, max_steps=self.steps)
        net.cpu().eval()
        with torch.no_grad():
            embedded = net.embed(torch.cat([unit(messages.anonymous), known]))
            first, second = asked_pairs(view).T
            return MatchingEstimate(scores=net(embedded[first], embedded[second]))
