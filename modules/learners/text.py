"""Federated learning from texts: a language model (NNLM) or a sentiment regressor (NNSA), section 5 of its paper."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric, Metric

from datamodules.cohort import Cohort
from datamodules.devices.word_rows import with_word_rows
from defenses.base import Defense
from modules.engine.local_hyperparameters import LocalTraining
from modules.engine.tasks import Parameters
from modules.federated import FederatedModule, Weighting
from modules.learners.text_options import TextOptions
from modules.learners.text_task import EMBEDDING, TextTask, last_states
from modules.server import ServerOptimizer
from protocol.errors import InputError
from protocol.seeding import PERSISTENT, generator_for

PAPER_LOCAL = LocalTraining(learning_rate=0.01, batch_size=32)
"""Learning rate and one epoch are the paper's; its batch is not printed, and this is its library's default."""
TOP = 5
"""Words among which the next one counts as found."""


class FederatedText(FederatedModule):
    """Devices that learn from their users' texts together.

    Args:
        network: sizes, and what is learned; `modules.learners.text_options.SENTIMENT` for the paper's regressor.
        local: how devices train.
        server: what the server does with the average.
        defenses: what devices do to protect themselves.
        weighting: whether a device counts by its examples (the paper's Algorithm 1) or as one.
        seed: seed of every draw.
    """

    rows_are_public = False

    def __init__(
        self,
        *,
        network: TextOptions = TextOptions(),  # noqa: B008 - frozen
        local: LocalTraining = PAPER_LOCAL,
        server: ServerOptimizer = ServerOptimizer(),  # noqa: B008 - frozen
        defenses: Sequence[Defense] = (),
        weighting: Weighting = "examples",
        seed: int = 0,
    ) -> None:
        super().__init__(local=local, server=server, defenses=defenses, weighting=weighting, seed=seed)
        self.options = network
        self.embedding = nn.Embedding(network.vocabulary, network.embedding)
        self.lstm = nn.LSTM(network.embedding, network.hidden)
        self.output = nn.Linear(network.hidden, network.outputs)
        _initialise(self, generator_for(seed, "global-model", PERSISTENT))
        self._task = TextTask(network)
        self.quality = MeanMetric()

    @property
    def task(self) -> TextTask:
        return self._task

    @property
    def row_parameters(self) -> tuple[str, ...]:
        """The words' table: a device trains the rows of its own words."""
        return (EMBEDDING,)

    @property
    def metric(self) -> str:
        """What `update_metrics` measures: higher is better of ``top5``, lower of ``mae``."""
        return "mae" if self.options.task == "rating" else "top5"

    def interact(self, cohort: Cohort, model: Parameters) -> Cohort:
        """Each device looks up which rows of the table are of its words.

        Raises:
            InputError: the examples are no texts.
        """
        if "tokens" not in cohort.examples:
            raise InputError(
                expected="data whose examples are texts, e.g. Blog or SyntheticPosts",
                found=f"examples of {', '.join(cohort.examples)}",
                way_out="Give other --data, or a --model that learns from these.",
            )
        return with_word_rows(cohort)

    def learner_description(self) -> dict[str, Any]:
        arguments = {"network": dataclasses.asdict(self.options), "local": dataclasses.asdict(self.local)}
        return {"name": "text", "arguments": arguments}

    def forward(self, tokens: Tensor) -> Tensor:
        """``(B, L)`` token numbers -> logits ``(B, L - 1, V)`` of the words after the first, or ratings ``(B,)``."""
        times = tokens.T
        told: Tensor
        if self.options.task == "rating":
            states, _ = self.lstm(self.embedding(times))
            told = self.output(last_states(states, times))[:, 0]
        else:
            states, _ = self.lstm(self.embedding(times[:-1]))
            told = self.output(states.transpose(0, 1))
        return told

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Top-5 accuracy of the next word, or mean absolute error of the rating, on held-out texts."""
        for name, metric in self.update_metrics(batch).items():
            self.log(name, metric, on_epoch=True, prog_bar=True, batch_size=len(batch["tokens"]))

    def update_metrics(self, batch: dict[str, Tensor]) -> dict[str, Metric]:
        """Adds a batch of held-out texts."""
        told = self(batch["tokens"])
        if self.options.task == "rating":
            self.quality.update((told - batch["label"]).abs())
        else:
            following = batch["tokens"][:, 1:]
            real = following > 0
            hits = (told[real].topk(TOP, dim=1).indices == following[real][:, None]).any(1)
            self.quality.update(hits.float())
        return {f"val/{self.metric}": self.quality}


@torch.no_grad()
def _initialise(model: FederatedText, generator: torch.Generator) -> None:
    """As torch's default: words' vectors from N(0, 1), layers uniform within 1 / sqrt(H)."""
    model.embedding.weight.normal_(generator=generator)
    bound = model.options.hidden**-0.5
    for value in (*model.lstm.parameters(), *model.output.parameters()):
        value.uniform_(-bound, bound, generator=generator)
