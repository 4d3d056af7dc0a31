"""Quality metrics of a list that clients may share in place of an update (Kharitonov 2019).

A metric has `LEVELS` values, so that a client can answer at random among them. They are whole multiples of a unit: sums
over lists are exact.
"""

import math
from typing import get_args

import torch
from torch import Tensor

from protocol.click_models import LONGEST
from protocol.simulators import ListMetric

UTILITY = "utility"
"""Name under which clients send their metrics, ``(numbers,)`` each: the mean over the lists of each ranker."""
LEVELS = LONGEST + 1
_RANKS = math.lcm(*range(1, LONGEST + 1))


def levels(metric: ListMetric, clicks: Tensor) -> Tensor:
    """Which of its values the metric takes, from 0 to `LEVELS` - 1.

    Args:
        metric: ``max-rr``: the reciprocal rank of the highest clicked document, 0 without a click. ``dcg``: discounted
            gain of the clicks, as a share of what ten clicks would give, rounded to tenths.
        clicks: ``(..., L)`` zeros and ones in displayed order, zero where padded.

    Returns:
        ``(...)`` int64.
    """
    clicked = clicks > 0.5
    place = torch.arange(clicks.shape[-1], device=clicks.device)
    if metric == "max-rr":
        first = torch.where(clicked, place, LONGEST).amin(-1)
        return torch.where(first < LONGEST, first + 1, 0)
    gains = 1 / (torch.arange(LONGEST, dtype=torch.float64, device=clicks.device) + 2).log2()
    share = (clicked * gains[: clicks.shape[-1]]).sum(-1) / gains.sum()
    return (share * (LEVELS - 1)).round().long()


def units(metric: ListMetric) -> tuple[Tensor, int]:
    """The values ``(LEVELS,)`` as int64 multiples of a unit, and how many units make 1."""
    if metric == "max-rr":
        return torch.tensor([0, *(_RANKS // rank for rank in range(1, LONGEST + 1))]), _RANKS
    return torch.arange(LEVELS), LEVELS - 1


def truthful_probability(epsilon: float) -> float:
    """Probability of the true value in randomised response over `LEVELS` values under epsilon-LDP (Kharitonov 2019).

    Any two true values give any answer with probabilities of ratio at most ``p (LEVELS - 1) / (1 - p) = e^epsilon``.
    """
    return 1.0 if math.isinf(epsilon) else 1 / (1 + (LEVELS - 1) * math.exp(-epsilon))


def response_law(truthful: float) -> Tensor:
    """``(LEVELS, LEVELS)`` probability of each answer (column) given the true value (row), float64."""
    law = torch.full((LEVELS, LEVELS), (1 - truthful) / (LEVELS - 1), dtype=torch.float64)
    return law.fill_diagonal_(truthful)


def respond(truth: Tensor, truthful: float, generator: torch.Generator) -> Tensor:
    """Answers at random: levels ``(...)`` -> levels ``(...)``, each true with probability `truthful`."""
    other = torch.randint(1, LEVELS, truth.shape, generator=generator)
    lies = torch.rand(truth.shape, generator=generator, dtype=torch.float64) >= truthful
    return torch.where(lies, (truth + other) % LEVELS, truth)


def check_metric(metric: str) -> None:
    """Refuses a metric that is not known.

    Raises:
        ValueError: it is none of `ListMetric`.
    """
    if metric not in get_args(ListMetric):
        raise ValueError(f"expected metric among {', '.join(get_args(ListMetric))}, got {metric!r}")
