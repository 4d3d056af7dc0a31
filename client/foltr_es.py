"""Clients of FOLtR-ES, which send a metric of their lists instead of a delta.

References:
    E. Kharitonov, "Federated Online Learning to Rank with Evolution Strategies", WSDM 2019.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from client.algorithm import Model
from client.list_metrics import UTILITY, ListMetric, levels, units
from client.ranking import RankingAlgorithm
from protocol.ranges import PositiveInt, UnitInterval


@dataclass(frozen=True, kw_only=True)
class FOLtRESAlgorithm(RankingAlgorithm):
    """Clients that share only a metric of their lists.

    Attributes:
        metric: list metric that clients send.
        numbers: number of sent values; each is the mean over an equal part of a client's lists.
        truthful: probability with which the metric of a list is reported truthfully; other values are equally likely.
    """

    name: ClassVar[str] = "foltr-es"
    learning_rate: ClassVar[float] = 1.0

    metric: ListMetric
    numbers: PositiveInt
    truthful: UnitInterval

    def simulate_lists(
        self,
        model: Model,
        features: Tensor,
        mask: Tensor,
        clicks: Tensor,
        order: Tensor | None = None,
        *,
        document: Tensor | None = None,
        half_detached: bool = False,
    ) -> dict[str, Tensor]:
        """Metrics that simulated clients send.

        The metric is piecewise constant in the clicks, so its gradient is zero where it exists, and gradient matching
        does not move from its start.
        """
        steps, one = units(self.metric)
        value = steps[levels(self.metric, clicks * mask)].to(clicks.dtype) / one
        # Keeps the clicks in the graph, with their gradient of zero.
        value = value + 0.0 * (clicks * mask).sum(-1)
        return {UTILITY: value.reshape(len(value), self.numbers, -1).mean(2)}
