"""The image ranker as the server can simulate it, knowing no client: full-batch steps, differentiable in the votes."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from modules.nets.ranker import ranker_shapes
from protocol.pointwise_descent import Items, as_parameters, as_ranker, descend


@dataclass(frozen=True, kw_only=True)
class ImageRankerLearner:
    """The public algorithm: a `protocol.simulators.PointwiseSimulator`.

    Attributes:
        learning_rate: of plain gradient descent on the mean binary cross-entropy.
        full_batch_steps: epochs, each one step over all images.
    """

    learning_rate: float = 0.01
    full_batch_steps: int = 5

    def network_shapes(self, held: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Shapes of the ranker."""
        return ranker_shapes(held)

    def simulate_votes(self, models: Mapping[str, Tensor], features: Tensor, votes: Tensor) -> dict[str, Tensor]:
        """Trains clients, each from a model of its own; gradients reach the votes.

        Args:
            models: by parameter ``(V, *shape)``.
            features: ``(V, R, F)``; expanded where all clients were served the same images.
            votes: ``(V, R)`` in [0, 1].

        Returns:
            Deltas by parameter, ``(V, *shape)``.
        """
        sent = as_ranker(models)
        rate, steps = self.learning_rate, self.full_batch_steps
        return as_parameters(
            descend(sent, Items(features), votes, learning_rate=rate, steps=steps)[-1].plus(sent, -1.0)
        )
