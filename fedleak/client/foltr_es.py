"""Clients of FOLtR-ES, which send a metric of their lists instead of a delta.

A metric has `LEVELS` values, so that a client can apply randomised response. The values are integer multiples of a
unit, so that sums over lists are exact.

References:
    [Kharitonov19].
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from fedleak.client.algorithm import Model
from fedleak.client.click_models import LONGEST
from fedleak.client.ranking import RankingAlgorithm
from fedleak.core.ranges import PositiveInt, UnitInterval

ListMetric = Literal["max-rr", "dcg"]
"""Quality of a list by the positions of its clicks, see `levels`."""
UTILITY = "utility"
"""Name of the clients' metrics among the deltas, ``(numbers,)`` each: the mean over the lists of each ranker."""
LEVELS = LONGEST + 1
_RANKS = math.lcm(*range(1, LONGEST + 1))


def levels(metric: ListMetric, clicks: Tensor) -> Tensor:
    """``(...)`` index of the metric's value, from 0 to `LEVELS` - 1, for ``clicks (..., L)`` in displayed order.

    Args:
        metric: ``max-rr``: the reciprocal rank of the first clicked document, 0 without a click. ``dcg``: discounted
            cumulative gain of the clicks, relative to that of ten clicks, rounded to tenths.
        clicks: zeros and ones, zero where padded.
    """
    clicked = clicks > 0.5
    position = torch.arange(clicks.shape[-1], device=clicks.device)
    if metric == "max-rr":
        first = torch.where(clicked, position, LONGEST).amin(-1)
        return torch.where(first < LONGEST, first + 1, 0)  # level r is the reciprocal rank 1 / r, level 0 none
    # The gain of a click at rank r is 1 / log2(r + 1).
    gains = 1 / (torch.arange(LONGEST, dtype=torch.float64, device=clicks.device) + 2).log2()
    clicked_gains = clicked * gains[: clicks.shape[-1]]
    share = clicked_gains.sum(-1) / gains.sum()
    return (share * (LEVELS - 1)).round().long()


def units(metric: ListMetric) -> tuple[Tensor, int]:
    """The values ``(LEVELS,)`` as int64 multiples of a unit, and the number of units in 1."""
    if metric == "max-rr":
        # Multiples of 1 / lcm(1..LONGEST), so that every reciprocal rank is a whole number.
        reciprocal_ranks = [_RANKS // rank for rank in range(1, LONGEST + 1)]
        return torch.tensor([0, *reciprocal_ranks]), _RANKS
    return torch.arange(LEVELS), LEVELS - 1


def truthful_probability(epsilon: float) -> float:
    """Probability of the true value in randomised response over `LEVELS` values under epsilon-LDP.

    For any two true values, the probabilities of an answer have a ratio of at most ``p (LEVELS - 1) / (1 - p) =
    e^epsilon``.
    """
    if math.isinf(epsilon):
        return 1.0
    return 1 / (1 + (LEVELS - 1) * math.exp(-epsilon))


def response_law(truthful: float) -> Tensor:
    """``(LEVELS, LEVELS)`` probability of each answer (column) given the true value (row), float64."""
    law = torch.full((LEVELS, LEVELS), (1 - truthful) / (LEVELS - 1), dtype=torch.float64)
    return law.fill_diagonal_(truthful)


def respond(truth: Tensor, truthful: float, generator: torch.Generator) -> Tensor:
    """Randomised response: levels ``(...)`` -> levels ``(...)``, each true with probability `truthful`."""
    # A lie is one of the other levels, all equally likely: the true one plus a shift of 1 to LEVELS - 1.
    shift = torch.randint(1, LEVELS, truth.shape, generator=generator)
    lies = torch.rand(truth.shape, generator=generator, dtype=torch.float64) >= truthful
    return torch.where(lies, (truth + shift) % LEVELS, truth)


def check_metric(metric: str) -> None:
    """Raises `ValueError` unless the metric is one of `ListMetric`."""
    if metric not in get_args(ListMetric):
        raise ValueError(f"expected metric among {', '.join(get_args(ListMetric))}, got {metric!r}")


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
        level_units, units_in_1 = units(self.metric)
        metric = level_units[levels(self.metric, clicks * mask)].to(clicks.dtype) / units_in_1
        # Keeps the clicks in the graph, with their gradient of zero.
        metric = metric + 0.0 * (clicks * mask).sum(-1)
        return {UTILITY: metric.reshape(len(metric), self.numbers, -1).mean(2)}
