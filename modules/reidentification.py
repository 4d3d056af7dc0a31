"""The paper's re-identification network (section 4.4 and figure 13 a), and the attacks that ask it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from attacks.base import Attack, ServerView, ThreatModel
from attacks.deanonymization.estimates import PAIRS, MatchingEstimate, asked_pairs
from attacks.deanonymization.messages import Messages, read_messages, seen_only, unit
from attacks.deanonymization.published import REIDENTIFICATION, Reidentification
from attacks.deanonymization.span import in_span
from modules.attack_trainer import fit_quietly
from modules.random_batches import dropped, random_batches

HIDDEN = 128
_DROPOUT = 0.2
_LEARNING_RATE, _MOMENTUM, _DECAY = 0.01, 0.9, 1e-6
_BATCH = 32
"""Of the library that the paper used; the paper prints none."""


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
        active = self.hidden(vectors).relu()
        logits: Tensor = self.output(dropped(active, _DROPOUT, self.generator) if self.training else active)
        return logits

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """Mean cross-entropy."""
        vectors, labels = batch
        return cross_entropy(self(vectors), labels)

    def configure_optimizers(self) -> Any:
        """Decay as the paper's library has it: the learning rate falls as 1 / (1 + decay * step)."""
        optimizer = torch.optim.SGD(self.parameters(), lr=_LEARNING_RATE, momentum=_MOMENTUM)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + _DECAY * step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def train_dataloader(self) -> DataLoader[Any]:
        """Mini-batches in random order."""
        return random_batches(self.data, _BATCH, self.generator)


class ReidMLP(Reidentification):
    """The network as the paper has it (section 4.4, re-identification (iv)).

    Args:
        layers: see `Reidentification`.
        epochs: passes over the known messages; the paper prints none.
        accelerator: where to run, as Lightning names it.
    """

    name = "reid-mlp"

    def __init__(self, *, layers: Sequence[str] | None = None, epochs: int = 1000, accelerator: str = "auto") -> None:
        super().__init__(layers=layers)
        if epochs < 1:
            raise ValueError(f"expected epochs of at least 1, got {epochs}")
        self.epochs = epochs
        self.accelerator = accelerator

    def scores(self, messages: Messages, *, generator: torch.Generator) -> Tensor:
        """See `Reidentification.scores`."""
        return user_probabilities(messages, messages.anonymous, self.epochs, self.accelerator, generator)


class MatchingMLP(Attack):
    """The probability that both messages are of one user: ``max_u P[i = u] P[j = u]`` (section 4.4, matching (ii)).

    Threat model: as of re-identification; the question is which of given pairs of messages match.

    Args:
        layers: whose deltas are taken; None for all that are recorded.
        epochs: passes over the known messages; the paper prints none.
        accelerator: where to run, as Lightning names it.
    """

    name = "matching-mlp"
    threat_model = ThreatModel(
        sees=REIDENTIFICATION.sees, knows=REIDENTIFICATION.knows, needs=("deltas", "known", f"auxiliary:{PAIRS}")
    )
    estimates = MatchingEstimate

    def __init__(self, *, layers: Sequence[str] | None = None, epochs: int = 1000, accelerator: str = "auto") -> None:
        self.machine = ReidMLP(layers=layers, epochs=epochs, accelerator=accelerator)

    def run(self, view: ServerView, *, generator: torch.Generator) -> MatchingEstimate:
        """See `Attack.run`."""
        machine, messages = self.machine, read_messages(view, self.machine.layers)
        asked = torch.cat([messages.anonymous, messages.known])
        trained = seen_only(messages)
        known, asked = in_span(unit(trained.known), unit(asked))
        trained = dataclasses.replace(trained, known=known, anonymous=asked)
        probabilities = user_probabilities(trained, asked, machine.epochs, machine.accelerator, generator)
        first, second = asked_pairs(view).T
        return MatchingEstimate(scores=(probabilities[first] * probabilities[second]).amax(1))


def user_probabilities(
    messages: Messages, asked: Tensor, epochs: int, accelerator: str, generator: torch.Generator
) -> Tensor:
    """``(A, U)`` probabilities of the users for vectors ``(A, D)``, by a network trained on the known messages."""
    net = ReidentificationNet(
        messages.known, messages.labels, users=len(messages.users), whole=messages.whole, generator=generator
    )
    fit_quietly(net, accelerator=accelerator, max_epochs=epochs)
    net.cpu().eval()
    with torch.no_grad():
        probabilities: Tensor = net(asked).softmax(1)
    return probabilities


def empty_linear(inputs: int, outputs: int) -> nn.Linear:
    """A layer whose weights are to be drawn: torch's own drawing would take from the global generator."""
    return nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")


@torch.no_grad()
def glorot_(layer: nn.Linear, fan_in: int, generator: torch.Generator) -> None:
    """First weights as the paper's library draws them: uniform, by both widths; no bias."""
    bound = (6 / (fan_in + layer.out_features)) ** 0.5
    layer.weight.uniform_(-bound, bound, generator=generator)
    layer.bias.zero_()
