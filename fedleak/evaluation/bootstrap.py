"""Bootstraps over clients and seeds of what is no mean of bounded values: ratios, and curves."""

import torch
from torch import Tensor


def crossed_ratio(
    numerator: Tensor, denominator: Tensor, *, generator: torch.Generator, resamples: int = 2000
) -> tuple[float, float, float]:
    """Ratio of the means of two paired tables and its interval over clients and seeds.

    Both means are of the same resampled clients and seeds, so what makes a client easy or hard for both cancels.

    Args:
        numerator: ``(P, S)`` values of each client under each seed.
        denominator: ``(P, S)``; a pair with a value in only one table is left out.
        generator: source of the resamples.
        resamples: number of resamples.

    Returns:
        Ratio, lower and upper end; NaN if the mean of `denominator` is zero or no pair has two values.

    References:
        [Owen07].
    """
    in_both = numerator.isfinite() & denominator.isfinite()
    numerator = numerator.double().where(in_both, 0.0)
    denominator = denominator.double().where(in_both, 0.0)
    if not bool(in_both.any()) or float(denominator.sum()) == 0:
        return torch.nan, torch.nan, torch.nan
    clients_count, seeds_count = in_both.shape
    people = _times_drawn(resamples, clients_count, generator)
    seeds = _times_drawn(resamples, seeds_count, generator)
    # Sums over clients and seeds, each weighted by how often it was drawn.
    above = ((people @ numerator) * seeds).sum(1)
    below = ((people @ denominator) * seeds).sum(1)
    ratios = torch.where(below != 0, above / below, torch.nan)
    low, high = _interval(ratios)
    return float(numerator.sum() / denominator.sum()), low, high


def crossed_weights(people: Tensor, seeds: Tensor, *, resamples: int, generator: torch.Generator) -> Tensor:
    """``(resamples, N)`` how often each of N values of clients ``(N,)`` and seeds ``(N,)`` is drawn.

    Clients and seeds are drawn with replacement, and a value as often as both together; seeds stay if each client has
    its own. A resample in which no value is drawn has weights of one.
    """
    _, person = torch.unique(people, return_inverse=True)
    _, seed = torch.unique(seeds, return_inverse=True)
    people_count = int(person.max()) + 1
    seeds_count = int(seed.max()) + 1
    times_person = _times_drawn(resamples, people_count, generator)
    weights = times_person[:, person]
    # Seeds are drawn too, unless each client has its own.
    if seeds_count > 1 and people_count < len(people):
        times_seed = _times_drawn(resamples, seeds_count, generator)
        weights = weights * times_seed[:, seed]
    return weights.where(weights.sum(1, keepdim=True) > 0, 1.0)


def _interval(means: Tensor) -> tuple[float, float]:
    tail = (1 - 0.95) / 2
    low, high = means.nanquantile(torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return low, high


def _times_drawn(resamples: int, count: int, generator: torch.Generator) -> Tensor:
    """``(resamples, count)`` how often each item occurs among `count` draws with replacement."""
    drawn = torch.randint(count, (resamples, count), generator=generator)
    times = torch.zeros(resamples, count, dtype=torch.float64)
    return times.scatter_add_(1, drawn, torch.ones_like(times))
