"""FOLtR-ES as the server can simulate it: what clients would send for given clicks."""

from collections.abc import Mapping

import torch
from torch import Tensor

from modules.nets.ranker import ranker_shapes
from protocol.list_metrics import UTILITY, check_metric, levels, units
from protocol.simulators import ListMetric


class FOLtRESLearner:
    """Simulates clients of FOLtR-ES; see `protocol.simulators.RankingSimulator` and `protocol.list_metrics`.

    Args:
        metric: what clients share.
        numbers: how many of it; each is the mean over an equal part of a client's lists.
        truthful: probability with which the metric of a list is told as it is.
        click_model: name of the cascade click model that the clients follow.
        grade_law: how often each grade occurs among the documents, ``(G,)``.
    """

    learning_rate = 1.0

    def __init__(
        self, *, metric: ListMetric, numbers: int, truthful: float, click_model: str, grade_law: list[float]
    ) -> None:
        check_metric(metric)
        self.metric: ListMetric = metric
        self.numbers = numbers
        self.truthful = truthful
        self.click_model = click_model
        self.grade_law = torch.tensor(grade_law)

    def network_shapes(self, held: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Shapes of the ranker."""
        return ranker_shapes(held)

    def simulate_lists(
        self,
        model: Mapping[str, Tensor],
        features: Tensor,
        mask: Tensor,
        clicks: Tensor,
        order: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Metrics that simulated clients share.

        The metric depends on which document is clicked first, or on whole clicks: it is constant but where it jumps.
        So its gradient by the clicks is zero wherever there is one, and gradient matching stays where it starts.
        """
        steps, one = units(self.metric)
        value = steps[levels(self.metric, clicks * mask)].to(clicks.dtype) / one
        # Keeps the clicks in the graph, with the gradient that they have.
        value = value + 0.0 * (clicks * mask).sum(-1)
        return {UTILITY: value.reshape(len(value), self.numbers, -1).mean(2)}
