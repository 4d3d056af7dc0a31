"""Federated classification of images into two kinds, with one logit and binary cross-entropy."""

from torch import Tensor

from fedleak.client.binary_classifier import BinaryClassifierAlgorithm
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.training.federated import Federation, Unpack
from fedleak.training.network_learner import NetworkLearner


class FederatedBinaryClassifier(NetworkLearner):
    """Federated classifier with one logit: whether the class of an image is among some classes.

    Args:
        image_shape: channels, height and width, None to take them from the data.
        positive: numbers of the positive classes; by default the odd ones of ten.
        network: options of the classifier.
        local: how clients train.
        federation: arguments of `FederatedModule`.
    """

    precisions = ("32-true", "64-true")

    def __init__(
        self,
        *,
        image_shape: tuple[int, int, int] | None = None,
        positive: tuple[int, ...] = (1, 3, 5, 7, 9),
        network: ClassifierOptions = ClassifierOptions(),  # noqa: B008 - frozen
        local: LocalTraining = LocalTraining(batch_size=16),  # noqa: B008 - frozen
        **federation: Unpack[Federation],
    ) -> None:
        super().__init__(local=local, **federation)
        self.options = network
        self.positive = positive
        self.build_with(image_shape=image_shape)

    def build(self, image_shape: tuple[int, int, int]) -> None:
        generator = generator_for(self.seed, "global-model", PERSISTENT)
        self.image_shape = image_shape
        built = build_classifier(self.options, image_shape=image_shape, classes=1, generator=generator)
        self.body = built.body
        self.output = built.output
        self.learn(
            BinaryClassifierAlgorithm(
                network=self.options,
                image_shape=image_shape,
                positive=self.positive,
                local=self.local,
                update_l1=self.update_l1,
            )
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """``(B, channels, height, width)`` -> logits ``(B, 1)``."""
        logits: Tensor = self.output(self.body(inputs))
        return logits
