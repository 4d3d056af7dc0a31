"""Means with intervals: bootstraps over victims, and over people and seeds; exact intervals of proportions."""

from dataclasses import dataclass

import torch
from scipy.stats import binomtest
from torch import Tensor


@dataclass(frozen=True)
class Summary:
    """What a sample of per-victim values says.

    Attributes:
        mean: plain mean over the victims.
        std: their standard deviation.
        low: lower end of the bootstrap interval of the mean.
        high: upper end.
        n: number of victims that have a value; of people in several trainings, of people.
    """

    mean: float
    std: float
    low: float
    high: float
    n: int


_NUMBERS_AT_ONCE = 2**20
"""Bounds the memory of the resamples."""


def bootstrap(values: Tensor, *, generator: torch.Generator, resamples: int = 2000, level: float = 0.95) -> Summary:
    """Mean with a percentile bootstrap interval over victims (Efron and Tibshirani 1993); NaN values are left out.

    Args:
        values: ``(V,)``.
        generator: source of the resamples.
        resamples: number of resamples.
        level: coverage.
    """
    kept = values[~values.isnan()].double()
    if not len(kept):
        return Summary(torch.nan, torch.nan, torch.nan, torch.nan, 0)
    drawn_at_once = max(1, _NUMBERS_AT_ONCE // len(kept))
    sizes = [min(drawn_at_once, resamples - start) for start in range(0, resamples, drawn_at_once)]
    draws = (torch.randint(len(kept), (size, len(kept)), generator=generator) for size in sizes)
    means = torch.cat([kept[drawn].mean(1) for drawn in draws])
    tail = (1 - level) / 2
    low, high = means.quantile(torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    std = float(kept.std()) if len(kept) > 1 else 0.0
    return Summary(float(kept.mean()), std, low, high, len(kept))


def crossed_bootstrap(
    values: Tensor, *, generator: torch.Generator, resamples: int = 2000, level: float = 0.95
) -> Summary:
    """Mean with an interval over people and trainings, both drawn with replacement: the pigeonhole bootstrap.

    One resample draws P of the P people and S of the S seeds and takes the mean of the values where they cross, each as
    often as its person and its seed were drawn together (Owen 2007, "The pigeonhole bootstrap"). Values of one person
    under several seeds are so never counted as other people's, and one model's fate never as chance of a person.

    Args:
        values: ``(P, S)`` of each person under each seed, NaN where there is none.
        generator: source of the resamples.
        resamples: number of resamples.
        level: coverage.

    Returns:
        `Summary` with n people, and the standard deviation of their means.
    """
    kept = ~values.isnan()
    values, kept = (part[kept.any(1)][:, kept.any(0)] for part in (values.double(), kept))
    alone = len(values) == kept.shape[1] == int(kept.sum())  # every person under a seed of its own
    if alone or kept.shape[1] <= 1:
        return bootstrap(values[kept], generator=generator, resamples=resamples, level=level)
    filled, present = values.nan_to_num(0.0), kept.double()
    at_once = max(1, _NUMBERS_AT_ONCE // sum(values.shape))
    means = []
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        people, seeds = (_times_drawn(size, count, generator) for count in values.shape)
        crossed = ((people @ part * seeds).sum(1) for part in (filled, present))
        means.append(next(crossed) / next(crossed))  # NaN where nothing crosses
    tail = (1 - level) / 2
    low, high = torch.cat(means).nanquantile(torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    own = filled.sum(1) / present.sum(1)
    std = float(own.std()) if len(own) > 1 else 0.0
    return Summary(float(filled.sum() / present.sum()), std, low, high, len(own))


def _times_drawn(resamples: int, count: int, generator: torch.Generator) -> Tensor:
    """``(resamples, count)`` how often each is drawn when as many are drawn with replacement."""
    drawn = torch.randint(count, (resamples, count), generator=generator)
    times = torch.zeros(resamples, count, dtype=torch.float64)
    return times.scatter_add_(1, drawn, torch.ones_like(times))


def clopper_pearson(successes: int, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of a proportion (Clopper and Pearson 1934): of 200 out of 200, 0.982 to 1.

    Args:
        successes: how many of them.
        n: independent trials.
        level: coverage.
    """
    found = binomtest(successes, n).proportion_ci(confidence_level=level, method="exact")
    return float(found.low), float(found.high)
