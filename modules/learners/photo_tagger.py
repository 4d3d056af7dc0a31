"""Federated learning of several labels for each photograph (deanonymization, section 5: CNN-PIPA-FL, CNN-OI-FL)."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import MultilabelAveragePrecision

from defenses.base import Defense
from modules.engine.local_hyperparameters import LocalTraining
from modules.federated import FederatedModule, Weighting
from modules.learners.photo_tagger_task import TaggingTask
from modules.learners.text import PAPER_LOCAL
from modules.nets.batch_norm import mask_batches
from modules.nets.tagger import Tagger, TaggerOptions
from modules.server import ServerOptimizer
from protocol.seeding import PERSISTENT, generator_for


class FederatedTagger(FederatedModule):
    """Devices that learn from their users' photographs together.

    Args:
        num_classes: number of labels, None for that of the data.
        network: which MobileNet.
        local: how devices train.
        server: what the server does with the average.
        defenses: what devices do to protect themselves.
        weighting: whether a device counts by its examples or as one.
        seed: seed of every draw.
    """

    metric = "ap-labels"

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        network: TaggerOptions = TaggerOptions(),  # noqa: B008 - frozen
        local: LocalTraining = PAPER_LOCAL,
        server: ServerOptimizer = ServerOptimizer(),  # noqa: B008 - frozen
        defenses: Sequence[Defense] = (),
        weighting: Weighting = "examples",
        seed: int = 0,
    ) -> None:
        super().__init__(local=local, server=server, defenses=defenses, weighting=weighting, seed=seed)
        self.options = network
        self.build_with(num_classes=num_classes)

    def build(self, num_classes: int) -> None:
        """The network."""
        self.num_classes = num_classes
        generator = generator_for(self.seed, "global-model", PERSISTENT)
        self.network = Tagger(self.options, labels=num_classes, generator=generator).network
        self._task = TaggingTask(Tagger(self.options, labels=num_classes, generator=torch.Generator()))
        self.quality = MultilabelAveragePrecision(num_labels=num_classes)

    @property
    def task(self) -> TaggingTask:
        return self._task

    def learner_description(self) -> dict[str, Any]:
        arguments = {
            # A recording names no file of the machine that made it: the weights are in its rounds.
            "network": {**dataclasses.asdict(self.options), "weights": None},
            "num_classes": self.num_classes,
            "local": dataclasses.asdict(self.local),
        }
        return {"name": "tagger", "arguments": arguments}

    def forward(self, images: Tensor) -> Tensor:
        """``(B, 3, height, width)`` -> logits ``(B, K)``."""
        logits: Tensor = self.network(images)
        return logits

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Mean average precision of the labels on held-out photographs."""
        for name, metric in self.update_metrics(batch).items():
            self.log(name, metric, on_epoch=True, prog_bar=True, batch_size=len(batch["image"]))

    def update_metrics(self, batch: dict[str, Tensor]) -> dict[str, Metric]:
        """Adds a batch of held-out photographs."""
        mask_batches(self.network, None)
        self.quality.update(self(batch["image"]), batch["label"].long())
        return {f"val/{self.metric}": self.quality}
