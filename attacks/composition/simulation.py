"""Simulated clients for composition attacks: their compositions, auxiliary images, changes and features."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from attacks.composition.base import Auxiliary, layer_change
from protocol.simulators import ClassifierSimulator
from protocol.view import ServerView

Blocks = dict[str, Tensor]
_SPREADS = (0.7, 1.5, 4.0)
_ALL_CLASSES = 0.4
_NUMBERS_AT_ONCE = 2**25
_COLOURS = 3


def random_compositions(count: int, classes: int, *, generator: torch.Generator) -> Tensor:
    """``(count, K)`` Dirichlet draws with three concentrations, on all classes or on a random set of at least two."""
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
    """``(V, count, K)`` random compositions near ``centre (V, K)``, on the classes in ``present (V, K)``.

    The standard deviation of a share of 0.1 is `spread`; it scales with the root of the share.
    """
    noise = torch.randn(len(centre), count, centre.shape[1], generator=generator, dtype=torch.float64)
    noise = noise * present[:, None]
    noise = (noise - noise.sum(2, keepdim=True) / present.sum(1)[:, None, None]) * present[:, None]
    shares = centre[:, None] + spread * (centre.clamp(min=0.02) / 0.1).sqrt()[:, None] * noise
    shares = shares.clamp(min=0) * present[:, None]
    return shares / shares.sum(2, keepdim=True)


def whole_counts(compositions: Tensor, sizes: Tensor) -> Tensor:
    """``(B, K)`` example counts nearest to proportions ``(B, K)`` of ``(B,)`` examples (largest remainder method)."""
    exact = compositions.double() * sizes[:, None]
    counts = exact.floor()
    rank = (exact - counts).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    return (counts + (rank < (sizes - counts.sum(1))[:, None])).long()


def draw_examples(known: Auxiliary, counts: Tensor, variants: int, *, generator: torch.Generator) -> Tensor:
    """``(B, N)`` indices into a pool of `variants` copies of the auxiliary set, padded with -1, for ``counts (B, K)``.

    A client's images of a class are drawn from a bootstrap sample of the auxiliary ones (k draws with replacement),
    each from a random copy. The variance of a mean over n images is then ``s^2 / n + s^2 / k``: it includes the
    sampling of the auxiliary set itself, which all simulations would otherwise share.

    References:
        Efron, "Bootstrap Methods: Another Look at the Jackknife", Annals of Statistics, 1979.
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
    """Images ``(M, channels, height, width)``, followed by ``variants - 1`` randomly shifted and flipped copies.

    A shift is at most a pixel in each direction; only colour images are flipped.
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
    """Yields simulated clients' deltas in chunks of bounded memory; ``examples (B, N)`` index a pool of images."""
    width = sum(value.numel() for value in view.model.values())
    for part in torch.split(examples, max(1, _NUMBERS_AT_ONCE // width)):
        deltas = view.require(ClassifierSimulator).simulate_examples(view.model, *pool, part, generator=generator)
        yield as_released(view, deltas, generator=generator)


def as_released(view: ServerView, deltas: dict[str, Tensor], *, generator: torch.Generator) -> dict[str, Tensor]:
    """The deltas after the clients' public defences: clipped jointly, then noised."""
    released = dict(deltas)
    for release in view.releases:
        norms = torch.stack([released[name].flatten(1).square().sum(1) for name in release.parameters]).sum(0).sqrt()
        factor = 1.0 if release.clip is None else (release.clip / norms.clamp(min=1e-12)).clamp(max=1)
        for name in release.parameters:
            value = released[name] * torch.as_tensor(factor).reshape(-1, *[1] * (released[name].dim() - 1))
            released[name] = value + release.noise_scale * torch.randn(value.shape, generator=generator)
    return released


@dataclass(frozen=True)
class Probes:
    """Auxiliary ``images`` and the global model's mean ``hidden (K, F)`` features and ``logits (K, K)`` by class."""

    images: Tensor
    hidden: Tensor
    logits: Tensor


def make_probes(view: ServerView, known: Auxiliary, per_class: int) -> Probes:
    """The first images of every class; a class with fewer than `per_class` images repeats them."""
    turn = torch.arange(per_class)[None] % known.per_class[:, None]
    images = known.images[known.by_class.gather(1, turn).flatten()]
    hidden, logits = view.require(ClassifierSimulator).outputs(
        {name: value[None] for name, value in view.model.items()}, images
    )
    classes = len(known.by_class)
    return Probes(images, _by_class(hidden, classes)[0], _by_class(logits, classes)[0])


def change_features(view: ServerView, deltas: dict[str, Tensor], probes: Probes) -> Blocks:
    """Features ``(B, D)`` of clients' deltas ``(B, *shape)``, in blocks; layers without deltas count as unchanged.

    The blocks are the change of the last layer's ``weight`` and ``bias``; and by class of the probes the mean change of
    the logits, centred over the classes (``logits``), the mean probabilities (``softmax``), and the mean change of the
    last layer's input (``hidden``), which reflects the earlier layers.
    """
    change = layer_change(view, deltas)
    count, classes = change.bias.shape
    models = {
        name: value + deltas[name] if name in deltas else value.expand(count, *value.shape)
        for name, value in view.model.items()
    }
    hidden, logits = view.require(ClassifierSimulator).outputs(models, probes.images)
    moved = _by_class(logits, classes) - probes.logits
    return {
        "weight": change.weight.flatten(1),
        "bias": change.bias,
        "logits": (moved - moved.mean(2, keepdim=True)).flatten(1),
        "softmax": _by_class(logits.softmax(2), classes).flatten(1),
        "hidden": (_by_class(hidden, classes) - probes.hidden).flatten(1),
    }


def joined(blocks: Blocks, scales: dict[str, float]) -> Tensor:
    """``(B, D)`` all blocks concatenated, each divided by its scale."""
    return torch.cat([blocks[name].double() / scale for name, scale in scales.items()], dim=1)


def block_scales(blocks: Blocks) -> dict[str, float]:
    """The r.m.s. of each block about its mean over the clients."""
    spread = {name: value - value.mean(0) for name, value in blocks.items()}
    return {name: max(float(value.double().square().mean().sqrt()), 1e-12) for name, value in spread.items()}


def _by_class(values: Tensor, classes: int) -> Tensor:
    """``(B, K * p, X)`` -> means ``(B, K, X)``."""
    return values.reshape(len(values), classes, -1, values.shape[2]).mean(2)
