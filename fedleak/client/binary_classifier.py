"""Clients that learn to answer yes or no about images, with one logit."""

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedleak.client.algorithm import RecordAlgorithm, Shapes
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier, classifier_shapes
from fedleak.client.network import NetworkAlgorithm
from fedleak.core.ranges import PositiveInt


def logit_loss(outputs: Tensor, targets: Tensor, **reduction: Any) -> Tensor:
    """Binary cross-entropy of logits ``(N, 1)`` and targets ``(N,)`` in [0, 1]."""
    return functional.binary_cross_entropy_with_logits(outputs.squeeze(-1), targets.to(outputs.dtype), **reduction)


@dataclass(frozen=True, kw_only=True)
class BinaryClassifierAlgorithm(NetworkAlgorithm, RecordAlgorithm):
    """Clients that learn whether the class of an image is one of some classes.

    Attributes:
        network: options of the classifier.
        image_shape: channels, height and width.
        positive: numbers of the classes that are positive.
    """

    name: ClassVar[str] = "binary-classifier"

    network: ClassifierOptions
    image_shape: tuple[PositiveInt, PositiveInt, PositiveInt]
    positive: tuple[int, ...]

    def network_shapes(self, recorded: Shapes) -> dict[str, tuple[int, ...]]:
        return classifier_shapes(self.network, image_shape=self.image_shape, classes=1)

    @functools.cached_property
    def template(self) -> nn.Module:
        return build_classifier(self.network, image_shape=self.image_shape, classes=1, generator=torch.Generator())

    @property
    def criterion(self) -> Any:
        return logit_loss

    def fields(self, examples: Parameters, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """Images, and 1 for those of a positive class, 0 for others."""
        inputs, labels = super().fields(examples, dtype)
        return inputs, self._targets(labels).to(dtype)

    def record_losses(self, parameters: Parameters, inputs: Tensor, labels: Tensor) -> Tensor:
        return super().record_losses(parameters, inputs, self._targets(labels))

    def _targets(self, labels: Tensor) -> Tensor:
        positive: Tensor = (labels[..., None] == labels.new_tensor(self.positive)).any(-1)
        return positive
