"""Clients that classify images with small convolutional networks.

References:
    [Dai24], section IV-A and table II.
"""

import functools
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedleak.client.algorithm import Shapes
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.engine.task import DRAWS
from fedleak.client.nets.batch_norm import mask_batches
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier, classifier_shapes
from fedleak.client.nets.dropout import draw_noise
from fedleak.client.network import ClassifierAlgorithm
from fedleak.core.ranges import PositiveInt
from fedleak.defenses.base import Defense, LocalStep
from fedleak.defenses.mixup import Mixup
from fedleak.defenses.soteria import Soteria


@dataclass(frozen=True, kw_only=True)
class ImageClassifierAlgorithm(ClassifierAlgorithm):
    """Clients that learn to classify images.

    Attributes:
        network: options of the classifier.
        image_shape: channels, height and width.
        num_classes: number of classes.
        mixup: defence that mixes the examples of a step, or None.
        soteria: defence that changes the gradient of the last layer, or None.
    """

    name: ClassVar[str] = "classifier"

    network: ClassifierOptions
    image_shape: tuple[PositiveInt, PositiveInt, PositiveInt]
    num_classes: PositiveInt
    mixup: Mixup | None = None
    soteria: Soteria | None = None

    @property
    def training_defenses(self) -> tuple[Defense, ...]:
        of_steps = [defense for defense in (self.mixup, self.soteria) if defense is not None]
        return (*super().training_defenses, *of_steps)

    def local_step(self, parameters: Parameters, examples: Parameters, mask: Tensor) -> LocalStep:
        inputs, labels = self.fields(examples, next(iter(parameters.values())).dtype)
        network = self._own_network
        mask_batches(network, mask)
        draw_noise(network, examples.get(DRAWS), examples)
        last = network.get_submodule(self.output_layer)

        def classify(inputs: Tensor) -> tuple[Tensor, Tensor]:
            # The features are the inputs of the last layer.
            features: list[Tensor] = []
            hook = last.register_forward_pre_hook(lambda _, arguments: features.append(arguments[0]))
            try:
                logits: Tensor = functional_call(network, parameters, (inputs,))
            finally:
                hook.remove()
            return features[0], logits

        return LocalStep(
            inputs=inputs,
            labels=labels,
            mask=mask,
            classes=self.num_classes,
            output=self.output_layer,
            independent=self.independent,
            classify=classify,
        )

    def fields_of(self, step: LocalStep) -> Parameters:
        return dict(zip(self.names, (step.inputs, step.labels), strict=True))

    def network_shapes(self, recorded: Shapes) -> dict[str, tuple[int, ...]]:
        return classifier_shapes(self.network, image_shape=self.image_shape, classes=self.num_classes)

    @functools.cached_property
    def template(self) -> nn.Module:
        return build_classifier(
            self.network, image_shape=self.image_shape, classes=self.num_classes, generator=torch.Generator()
        )
