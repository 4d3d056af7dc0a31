"""Simulated clients for composition attacks: their compositions, auxiliary images and changes."""

from collections.abc import Iterator

import torch
from torch import Tensor

from fedleak.client.auxiliary_images import Auxiliary
from fedleak.client.network import ClassifierAlgorithm
from fedleak.core.view import RoundView

_SPREADS = (0.7, 1.5, 4.0)
"""Dirichlet concentrations: clients with few dominant classes, mixed ones, and nearly balanced ones, in equal parts."""
_ALL_CLASSES = 0.4
"""Probability that a simulated client has every class; the others have a random set of classes."""
_RARE = 0.01
"""Share below which every other composition of `nearby_compositions` lacks a class."""
_SMALLEST_SPREAD_SHARE = 0.02
"""Share below which the spread shrinks no further, so that a class with a share of zero may still appear."""
_NUMBERS_AT_ONCE = 2**25
"""Largest number of delta entries of simulated clients that are in memory together."""


def random_compositions(count: int, classes: int, *, generator: torch.Generator) -> Tensor:
    """``(count, K)`` Dirichlet draws with three concentrations, on all classes or on a random set of classes."""
    # The rank of a uniform key is a random permutation of the classes; the first `size` of it are a random set.
    keys = torch.rand(count, classes, generator=generator).argsort(dim=1).argsort(dim=1)
    size = torch.randint(1, classes + 1, (count, 1), generator=generator)
    has_all = torch.rand(count, 1, generator=generator) < _ALL_CLASSES
    chosen = (keys < size) | has_all
    of_composition = torch.arange(count) % len(_SPREADS)
    spread = torch.tensor(_SPREADS)[of_composition][:, None].expand(count, classes)
    # Independent gamma draws, divided by their sum, are a Dirichlet draw.
    weights = torch._standard_gamma(spread.double(), generator=generator) * chosen
    return weights / weights.sum(1, keepdim=True)


def nearby_compositions(centre: Tensor, count: int, *, spread: float, generator: torch.Generator) -> Tensor:
    """``(V, count, K)`` random compositions near ``centre (V, K)``.

    The standard deviation of a share of 0.1 is `spread`; it scales with the root of the share. Every other composition
    has only the classes with a share above 0.01 in the centre: a client that lacks a class differs from one that has
    hardly any of it, most of all if it has one class only.
    """
    noise = torch.randn(len(centre), count, centre.shape[1], generator=generator, dtype=torch.float64)
    # Shares sum to one, so their errors sum to zero.
    noise = noise - noise.mean(2, keepdim=True)
    every_other = (torch.arange(count) % 2 == 0)[:, None]
    rare = (centre <= _RARE)[:, None] & every_other
    # The deviation of a share p is spread * sqrt(p / 0.1), as counts of a class scatter.
    deviation = spread * (centre.clamp(min=_SMALLEST_SPREAD_SHARE) / 0.1).sqrt()[:, None]
    shares = (centre[:, None] + deviation * noise).clamp(min=0).masked_fill(rare, 0)
    return shares / shares.sum(2, keepdim=True)


def draw_examples(auxiliary: Auxiliary, counts: Tensor, *, generator: torch.Generator) -> Tensor:
    """``(B, N)`` numbers of auxiliary images, padded with -1, for clients with ``counts (B, K)``.

    A client's images of a class are drawn from a bootstrap sample of the auxiliary ones (k draws with replacement). The
    variance of a mean over n images is then ``s^2 / n + s^2 / k``: it includes the
    sampling of the auxiliary set itself, which all simulations would otherwise share.

    References:
        [Efron79].
    """
    clients, classes = counts.shape
    sizes = counts.sum(1)
    # Example n of a client is of the first class whose cumulated count exceeds n.
    position = torch.arange(int(sizes.max())).expand(clients, -1)
    label = torch.searchsorted(counts.cumsum(1), position.contiguous(), right=True).clamp(max=classes - 1)
    width = auxiliary.by_class.shape[1]
    available = auxiliary.per_class[:, None]
    # Bootstrap: for each client and class, as many draws with replacement as there are auxiliary images of the class.
    sample = (torch.rand(clients, classes, width, generator=generator) * available).long()
    # Each example is then drawn from its client's own bootstrap sample.
    draw = (torch.rand(position.shape, generator=generator) * available[label, 0]).long()
    client = torch.arange(clients)[:, None]
    image = auxiliary.by_class[label, sample[client, label, draw]]
    return image.where(position < sizes[:, None], -1)


def simulated_changes(
    view: RoundView, pool: tuple[Tensor, Tensor], examples: Tensor, *, generator: torch.Generator
) -> Iterator[dict[str, Tensor]]:
    """Yields simulated clients' deltas in chunks of bounded memory; ``examples (B, N)`` index a pool of images."""
    algorithm = view.require(ClassifierAlgorithm)
    delta_size = sum(value.numel() for value in view.model.values())
    for part in torch.split(examples, max(1, _NUMBERS_AT_ONCE // delta_size)):
        deltas = algorithm.simulate_examples(view.model, *pool, part, generator=generator)
        yield as_released(view, deltas, generator=generator)


def mean_clip_factor(
    view: RoundView, parameter: str, pool: tuple[Tensor, Tensor], examples: Tensor, *, generator: torch.Generator
) -> float:
    """Mean factor by which simulated clients clip a parameter; ``examples (B, N)`` index a pool of images."""
    deltas = view.require(ClassifierAlgorithm).simulate_examples(view.model, *pool, examples, generator=generator)
    return float(view.clip_factors(parameter, deltas).double().mean())


def as_released(view: RoundView, deltas: dict[str, Tensor], *, generator: torch.Generator) -> dict[str, Tensor]:
    """The deltas after the clients' public defences: clipped jointly, then noised; no statistics are simulated."""
    released = dict(deltas)
    for release in view.releases:
        names = [name for name in release.parameters if name in released]
        # Parameters of one release are clipped by their joint norm.
        squares = {name: released[name].flatten(1).square().sum(1) for name in names}
        factors = release.clip_factors(squares)
        for name in names:
            value = released[name]
            if factors is not None:
                value = value * factors.reshape(-1, *[1] * (value.dim() - 1))
            noise = torch.randn(value.shape, generator=generator)
            released[name] = value + release.noise_scale * noise
    return released
