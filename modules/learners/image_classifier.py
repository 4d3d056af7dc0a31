"""Federated image classification (Decaf, section IV-A): FedAvg of a small convolutional network."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy

from datamodules.cohort import Cohort
from defenses.base import Defense
from modules.engine.local_hyperparameters import LocalTraining
from modules.engine.network_task import ClassificationTask
from modules.federated import FederatedModule, Weighting
from modules.nets.classifiers import ClassifierOptions, build_classifier
from modules.server import ServerOptimizer
from protocol.seeding import PERSISTENT, generator_for

PAPER_LOCAL = LocalTraining(optimizer="adadelta", learning_rate=1.0, eps=1e-6, batch_size=64)
"""Adadelta is the paper's; its learning rate, batch and epochs are not printed, and these are torch's defaults."""


class FederatedClassifier(FederatedModule):
    """Clients that learn one classifier of images together.

    Args:
        num_classes: number of classes, None for that of the data.
        image_shape: channels, height and width, None for those of the data.
        network: which classifier. Of batch norm only scale and shift are shared, see `modules.nets.batch_norm`.
        local: how clients train.
        server: what the server does with the average.
        defenses: what clients do to protect themselves.
        weighting: whether a client counts by its examples or as one.
        seed: seed of every draw.
    """

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        image_shape: tuple[int, int, int] | None = None,
        network: ClassifierOptions = ClassifierOptions(),  # noqa: B008 - frozen
        local: LocalTraining = PAPER_LOCAL,
        server: ServerOptimizer = ServerOptimizer(),  # noqa: B008 - frozen
        defenses: Sequence[Defense] = (),
        weighting: Weighting = "examples",
        seed: int = 0,
    ) -> None:
        super().__init__(local=local, server=server, defenses=defenses, weighting=weighting, seed=seed)
        self.options = network
        self.build_with(num_classes=num_classes, image_shape=image_shape)

    def build(self, num_classes: int, image_shape: tuple[int, int, int]) -> None:
        """The network."""
        generator = generator_for(self.seed, "global-model", PERSISTENT)
        self.num_classes = num_classes
        self.image_shape = image_shape
        built = build_classifier(self.options, image_shape=image_shape, classes=num_classes, generator=generator)
        self.body, self.output = built.body, built.output
        # A task of its own copy: what threads do to it must not touch the global model.
        self._task = ClassificationTask(
            build_classifier(self.options, image_shape=image_shape, classes=num_classes, generator=torch.Generator())
        )
        self.accuracy = MulticlassAccuracy(num_classes=num_classes, average="micro")

    @property
    def task(self) -> ClassificationTask:
        """Mean cross-entropy over a client's images."""
        return self._task

    def client_truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """How many examples of each class a client has."""
        one_hot = torch.nn.functional.one_hot(cohort.examples["label"], self.num_classes)
        return {"class_counts": (one_hot * cohort.mask[..., None]).sum(1)}

    def learner_description(self) -> dict[str, Any]:
        arguments = {
            "network": dataclasses.asdict(self.options),
            "image_shape": list(self.image_shape),
            "num_classes": self.num_classes,
            "local": dataclasses.asdict(self.local),
        }
        return {"name": "classifier", "arguments": arguments}

    def forward(self, images: Tensor) -> Tensor:
        """``(B, channels, height, width)`` -> logits ``(B, K)``."""
        logits: Tensor = self.output(self.body(images))
        return logits

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Accuracy on the test images."""
        for name, metric in self.update_metrics(batch).items():
            self.log(name, metric, on_epoch=True, prog_bar=True, batch_size=len(batch["label"]))

    def update_metrics(self, batch: dict[str, Tensor]) -> dict[str, Metric]:
        """Adds a batch of test images to the accuracy."""
        self.accuracy.update(self(batch["image"]), batch["label"])
        return {"val/accuracy": self.accuracy}
