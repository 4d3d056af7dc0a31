"""Clients that classify images with small convolutional networks.

References:
    Dai, Zhou and Fu, "Decaf: Data Distribution Decompose Attack against Federated Learning", 2024, arXiv:2405.15316,
    section IV-A and table II.
"""

import functools
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from client.algorithm import Shapes
from client.nets.classifiers import ClassifierOptions, build_classifier, classifier_shapes
from client.network import ClassifierAlgorithm
from protocol.ranges import PositiveInt


@dataclass(frozen=True, kw_only=True)
class ImageClassifierAlgorithm(ClassifierAlgorithm):
    """Clients that learn to classify images.

    Attributes:
        network: options of the classifier.
        image_shape: channels, height and width.
        num_classes: number of classes.
    """

    name: ClassVar[str] = "classifier"

    network: ClassifierOptions
    image_shape: tuple[PositiveInt, PositiveInt, PositiveInt]
    num_classes: PositiveInt

    def network_shapes(self, held: Shapes) -> dict[str, tuple[int, ...]]:
        return classifier_shapes(self.network, image_shape=self.image_shape, classes=self.num_classes)

    @functools.cached_property
    def template(self) -> nn.Module:
        return build_classifier(
            self.network, image_shape=self.image_shape, classes=self.num_classes, generator=torch.Generator()
        )
