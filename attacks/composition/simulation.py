"""Simulated clients: compositions, the auxiliary images that they hold, and the changes that they would send."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from attacks.base import ServerView
from attacks.composition.view import Auxiliary

_SPREADS = (0.7, 1.5, 4.0)
_ALL_CLASSES = 0.4
_NUMBERS_AT_ONCE = 2**25
_COLOURS = 3


def random_compositions(count: int, classes: int, *, generator: torch.Generator) -> Tensor:
    """``(count, K)`` Dirichlet draws of three spreads, on all classes or on a random set of at least two."""
    keys = torch.rand(count, classes, generator=generator).argsort(dim=1).argsort(dim=1)
    size = torch.randint(2, classes + 1, (count, 1), generator=generator)
    whole = torch.rand(count, 1, generator=generator) < _ALL_CLASSES
    chosen = (keys < size) | whole
    spread = torch.tensor(_SPREADS)[torch.arange(count) % len(_SPREADS)][:, None].expand(count, classes)
    weights = torch._standard_gamma(spread.double(), generator=generator) * chosen
    return weights / weights.sum(1, keepdim=True)


def nearby_compositions(
    centre: Tensor, present: Tensor, count: int, *, spread: float, generator: torch.Generator
) -> Tensor:
    """Compositions about each victim's estimate, on its present classes.

    Args:
        centre: ``(V, K)``.
        present: ``(V, K)`` bool.
        count: how many for each victim.
        spread: standard deviation of a share of 0.1; it grows with the root of the share.
        generator: source of the draws.

    Returns:
        ``(V, count, K)``.
    """
    noise = torch.randn(len(centre), count, centre.shape[1], generator=generator, dtype=torch.float64)
    noise = noise * present[:, None]
    noise = (noise - noise.sum(2, keepdim=True) / present.sum(1)[:, None, None]) * present[:, None]
    shares = centre[:, None] + spread * (centre.clamp(min=0.02) / 0.1).sqrt()[:, None] * noise
    shares = shares.clamp(min=0) * present[:, None]
    return shares / shares.sum(2, keepdim=True)


def whole_counts(compositions: Tensor, sizes: Tensor) -> Tensor:
    """``(B, K)`` numbers of examples nearest to ``(B, K)`` proportions of ``(B,)`` examples (largest remainders)."""
    exact = compositions.double() * sizes[:, None]
    counts = exact.floor()
    rank = (exact - counts).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    return (counts + (rank < (sizes - counts.sum(1))[:, None])).long()


def draw_examples(known: Auxiliary, counts: Tensor, variants: int, *, generator: torch.Generator) -> Tensor:
    """Which images of a pool of `variants` copies of the auxiliary set each simulated client holds.

    A client's images of a class are independent draws from a bootstrap sample of the auxiliary ones (k draws with
    replacement), each as a random copy. Of a mean over n images the simulations then vary by ``s^2 / n + s^2 / k``: the
    client's own sampling and, as Efron's bootstrap has it, that of the auxiliary set, which all simulations share
    otherwise, so that their spread would not show it.

    Args:
        known: the auxiliary set.
        counts: ``(B, K)``.
        variants: copies of the set in the pool, one after the other.
        generator: source of the draws.

    Returns:
        ``(B, N)`` int64, padded with -1.
    """
    clients, classes = counts.shape
    sizes = counts.sum(1)
    place = torch.arange(int(sizes.max())).expand(clients, -1)
    ends = counts.cumsum(1)
    label = torch.searchsorted(ends, place.contiguous(), right=True).clamp(max=classes - 1)
    width = known.by_class.shape[1]
    available = known.per_class[:, None]
    sample = (torch.rand(clients, classes, width, generator=generator) * available).long()
    turn = (torch.rand(place.shape, generator=generator) * available[label, 0]).long()
    image = known.by_class[label, sample[torch.arange(clients)[:, None], label, turn]]
    copy = torch.randint(variants, place.shape, generator=generator)
    return (copy * len(known.images) + image).where(place < sizes[:, None], -1)


def augmented(images: Tensor, variants: int, *, generator: torch.Generator) -> Tensor:
    """The images, and copies moved by up to a pixel each way and, in colour, flipped at random.

    Args:
        images: ``(M, channels, height, width)``.
        variants: sets in all, the first the images themselves.
        generator: source of the moves.

    Returns:
        ``(variants * M, channels, height, width)``.
    """
    height, width = images.shape[2:]
    larger = pad(images, (1, 1, 1, 1), mode="replicate")
    made = [images]
    for _ in range(variants - 1):
        down, right = torch.randint(3, (2, len(images)), generator=generator)
        rows = (down[:, None] + torch.arange(height))[:, :, None]
        columns = (right[:, None] + torch.arange(width))[:, None]
        moved = larger.permute(0, 2, 3, 1)[torch.arange(len(images))[:, None, None], rows, columns].permute(0, 3, 1, 2)
        if images.shape[1] == _COLOURS:
            flipped = torch.rand(len(images), 1, 1, 1, generator=generator) < 0.5
            moved = torch.where(flipped, moved.flip(3), moved)
        made.append(moved)
    return torch.cat(made)


def simulated_changes(
    view: ServerView, pool: tuple[Tensor, Tensor], examples: Tensor, *, generator: torch.Generator
) -> Iterator[dict[str, Tensor]]:
    """What simulated clients would send, as many at a time as memory is given for.

    Args:
        view: what the server has.
        pool: images and labels.
        examples: ``(B, N)`` what each holds.
        generator: source of the order of mini-batches, and of the noise that clients add.
    """
    width = sum(value.numel() for value in view.model.values())
    for part in torch.split(examples, max(1, _NUMBERS_AT_ONCE // width)):
        deltas = view.classifier().simulate_examples(view.model, *pool, part, generator=generator)
        yield as_released(view, deltas, generator=generator)


def as_released(view: ServerView, deltas: dict[str, Tensor], *, generator: torch.Generator) -> dict[str, Tensor]:
    """What the clients' public defences would make of deltas: clipped together, then noised."""
    released = dict(deltas)
    for release in view.releases:
        norms = torch.stack([released[name].flatten(1).square().sum(1) for name in release.parameters]).sum(0).sqrt()
        factor = 1.0 if release.clip is None else (release.clip / norms.clamp(min=1e-12)).clamp(max=1)
        for name in release.parameters:
            value = released[name] * torch.as_tensor(factor).reshape(-1, *[1] * (released[name].dim() - 1))
            released[name] = value + release.noise_scale * torch.randn(value.shape, generator=generator)
    return released
