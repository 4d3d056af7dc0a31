"""Bootstraps over clients and seeds of what is no mean of bounded values: ratios, and curves."""

import torch
from torch import Tensor


def crossed_ratio(
    one: Tensor, two: Tensor, *, generator: torch.Generator, resamples: int = 2000
) -> tuple[float, float, float]:
    """Ratio of the means of two paired tables and its interval over clients and seeds.

    Both means are of the same resampled clients and seeds, so what makes a client easy or hard for both cancels.

    Args:
        one: ``(P, S)`` values of each client under each seed.
        two: ``(P, S)``; a pair with a value in only one table is left out.
        generator: source of the resamples.
        resamples: number of resamples.

    Returns:
        Ratio, lower and upper end; NaN if the mean of `two` is zero or no pair has two values.

    References:
        A. B. Owen, "The pigeonhole bootstrap", Annals of Applied Statistics, 2007.
    """
    kept = one.isfinite() & two.isfinite()
    one, two = (table.double().where(kept, 0.0) for table in (one, two))
    if not bool(kept.any()) or float(two.sum()) == 0:
        return torch.nan, torch.nan, torch.nan
    people, seeds = (_times_drawn(resamples, count, generator) for count in kept.shape)
    above, below = (((people @ table) * seeds).sum(1) for table in (one, two))
    ratios = torch.where(below != 0, above / below, torch.nan)
    return float(one.sum() / two.sum()), *_interval(ratios)


def crossed_weights(people: Tensor, seeds: Tensor, *, resamples: int, generator: torch.Generator) -> Tensor:
    """``(resamples, N)`` how often each of N values of clients ``(N,)`` and seeds ``(N,)`` is drawn.

    Clients and seeds are drawn with replacement, and a value as often as both together; seeds stay if each client has
    its own. A resample in which no value is drawn has weights of one.
    """
    codes = [torch.unique(own, return_inverse=True)[1] for own in (people, seeds)]
    counts = [int(code.max()) + 1 for code in codes]
    drawn = _times_drawn(resamples, counts[0], generator)[:, codes[0]]
    if counts[1] > 1 and counts[0] < len(people):
        drawn = drawn * _times_drawn(resamples, counts[1], generator)[:, codes[1]]
    return drawn.where(drawn.sum(1, keepdim=True) > 0, 1.0)


def _interval(means: Tensor) -> tuple[float, float]:
    tail = (1 - 0.95) / 2
    low, high = means.nanquantile(torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return low, high


def _times_drawn(resamples: int, count: int, generator: torch.Generator) -> Tensor:
    """``(resamples, count)`` how often each item occurs among `count` draws with replacement."""
    drawn = torch.randint(count, (resamples, count), generator=generator)
    times = torch.zeros(resamples, count, dtype=torch.float64)
    return times.scatter_add_(1, drawn, torch.ones_like(times))
