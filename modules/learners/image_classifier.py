"""Federated image classification with small convolutional networks.

References:
    [Dai24], section IV-A and table II.
"""

from torch import Tensor

from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier
from fedleak.core.errors import require
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.defenses.mixup import Mixup
from fedleak.defenses.soteria import Soteria
from fedleak.server.model_manipulation import ModelManipulation
from fedleak.training.federated import Federation, Unpack
from fedleak.training.network_learner import NetworkLearner

PAPER_LOCAL = LocalTraining(optimizer="adadelta", learning_rate=1.0, eps=1e-6, batch_size=64)
"""Adadelta as in the paper, which does not give learning rate, batch size and epochs; these are torch's defaults."""


class FederatedClassifier(NetworkLearner):
    """Federated image classifier.

    Args:
        num_classes: number of classes, None to take the number from the data.
        image_shape: channels, height and width, None to take them from the data.
        network: options of the classifier; batch norms share only scale and shift, see
            `fedleak.client.nets.batch_norm`.
        local: how clients train.
        manipulation: what a malicious server sends in place of the global model; None for an honest server.
        federation: arguments of `FederatedModule`.
    """

    precisions = ("32-true", "64-true")

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        image_shape: tuple[int, int, int] | None = None,
        network: ClassifierOptions = ClassifierOptions(),  # noqa: B008 - frozen
        local: LocalTraining = PAPER_LOCAL,
        manipulation: ModelManipulation | None = None,
        **federation: Unpack[Federation],
    ) -> None:
        super().__init__(local=local, **federation)
        require(
            manipulation is None or network.activation == "relu",
            "network.activation: relu with a manipulation of the model, which makes units inactive",
            network.activation,
            "Set it, or remove model.manipulation.",
        )
        self.options = network
        self.manipulation = manipulation
        self.build_with(num_classes=num_classes, image_shape=image_shape)

    def build(self, num_classes: int, image_shape: tuple[int, int, int]) -> None:
        generator = generator_for(self.seed, "global-model", PERSISTENT)
        self.num_classes = num_classes
        self.image_shape = image_shape
        built = build_classifier(self.options, image_shape=image_shape, classes=num_classes, generator=generator)
        self.body = built.body
        self.bottleneck = built.bottleneck
        self.output = built.output
        self.learn(
            ImageClassifierAlgorithm(
                network=self.options,
                image_shape=image_shape,
                num_classes=num_classes,
                local=self.local,
                update_l1=self.update_l1,
                mixup=self.defense_of(Mixup),
                soteria=self.defense_of(Soteria),
            )
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """``(B, channels, height, width)`` -> logits ``(B, K)``."""
        logits: Tensor = self.output(self.bottleneck(self.body(inputs)))
        return logits
