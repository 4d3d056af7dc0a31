"""Federated multi-label classification of photographs (CNN-PIPA-FL and CNN-OI-FL).

References:
    [Orekondy18], section 5.
"""

import dataclasses

from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import MultilabelAveragePrecision

from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.nets.batch_norm import mask_batches
from fedleak.client.tagger import Tagger, TaggerAlgorithm, TaggerOptions
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.modules.learners.text import PAPER_LOCAL
from fedleak.training.federated import Federation, Unpack
from fedleak.training.network_learner import NetworkLearner


class FederatedTagger(NetworkLearner):
    """Federated multi-label classifier of CNN-PIPA-FL and CNN-OI-FL.

    Args:
        num_classes: number of labels, None to take the number from the data.
        network: options of the MobileNet.
        local: how clients train.
        federation: arguments of `FederatedModule`.
    """

    metric = "ap-labels"

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        network: TaggerOptions = TaggerOptions(),  # noqa: B008 - frozen
        local: LocalTraining = PAPER_LOCAL,
        **federation: Unpack[Federation],
    ) -> None:
        super().__init__(local=local, **federation)
        self.options = network
        self.build_with(num_classes=num_classes)

    def build(self, num_classes: int) -> None:
        self.num_classes = num_classes
        generator = generator_for(self.seed, "global-model", PERSISTENT)
        self.network = Tagger(self.options, labels=num_classes, generator=generator).network
        # A recording must not refer to a file of one machine; its rounds contain the weights.
        options = dataclasses.replace(self.options, weights=None)
        self.learn(
            TaggerAlgorithm(network=options, num_classes=num_classes, local=self.local, update_l1=self.update_l1)
        )
        self.quality = MultilabelAveragePrecision(num_labels=num_classes)

    def update_metrics(self, batch: dict[str, Tensor]) -> dict[str, Metric]:
        """Mean average precision of the labels on held-out photographs."""
        mask_batches(self.network, None)
        self.quality.update(self(batch["image"]), batch["label"].long())
        return {f"val/{self.metric}": self.quality}
