"""Clients that vote on images and learn a score of each image separately."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from client.algorithm import ClientAlgorithm, Shapes
from client.engine.local_hyperparameters import LocalTraining
from client.pointwise_descent import HIDDEN_BIAS, OUTPUT_BIAS, Items, as_parameters, as_ranker, descend
from client.ranking import ranker_shapes
from protocol.ranges import PositiveFloat, PositiveInt
from protocol.rankers import OUTPUT


@dataclass(frozen=True, kw_only=True)
class VoteAlgorithm(ClientAlgorithm):
    """Clients that learn a score of each item separately, in full-batch steps.

    Attributes:
        learning_rate: learning rate of gradient descent on the mean binary cross-entropy.
        full_batch_steps: number of steps, each over all items.
    """

    name: ClassVar[str] = "image-ranker"

    learning_rate: PositiveFloat = 0.01
    full_batch_steps: PositiveInt = 5

    @property
    def local(self) -> LocalTraining:
        """Local training as options of the engine."""
        return LocalTraining(learning_rate=self.learning_rate, epochs=self.full_batch_steps)

    def network_shapes(self, held: Shapes) -> dict[str, tuple[int, ...]]:
        biases = {HIDDEN_BIAS: held[OUTPUT], OUTPUT_BIAS: (1,)} if HIDDEN_BIAS in held else {}
        return ranker_shapes(held) | biases

    def simulate_votes(self, models: Mapping[str, Tensor], features: Tensor, votes: Tensor) -> dict[str, Tensor]:
        """Deltas of clients that start from different models, differentiable in the votes.

        Args:
            models: ``(V, *shape)`` by parameter.
            features: ``(V, R, F)``; expanded if all clients were served the same images.
            votes: ``(V, R)`` in [0, 1].

        Returns:
            Deltas by parameter, ``(V, *shape)``.
        """
        sent = as_ranker(models)
        rate, steps = self.learning_rate, self.full_batch_steps
        last = descend(sent, Items(features, biases=sent.biases), votes, learning_rate=rate, steps=steps)[-1]
        return as_parameters(last.plus(sent, -1.0))
