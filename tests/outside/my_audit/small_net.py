"""A network of one's own, as a learner."""

from typing import Any

from torch import nn

from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.training.network_learner import NetworkLearner

DEFAULT = LocalTraining(learning_rate=0.1, batch_size=12)


class SmallNet(NetworkLearner):
    """Two linear layers on images of digits."""

    def __init__(
        self, *, num_classes: int | None = None, width: int = 16, local: LocalTraining = DEFAULT, **more: Any
    ) -> None:
        super().__init__(local=local, **more)
        self.width = width
        self.build_with(num_classes=num_classes)

    def build(self, num_classes: int) -> None:
        """The layers."""
        self.train_network(
            nn.Sequential(nn.Flatten(), nn.Linear(64, self.width), nn.ReLU(), nn.Linear(self.width, num_classes))
        )
