"""Share of noise in the clients' updates, as they declare it or as estimated from the spectrum."""

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedleak.core.declared_noise import noise_is_refuted, sent_numbers
from fedleak.core.view import RoundView

_SMALLEST = 8
"""Smallest number of rows and columns for a spectral estimate."""
_LARGE = 64
"""Smallest number of rows and columns for a proof of noise; of 64 x 64, its eigenvalues are within 0.08 of the law."""
_FLAT = 0.1
"""Largest distance from the law of noise. That of smaller matrices without noise was 0.18 or more."""
_EQUAL = 1.1
"""Largest ratio of the clients' standard deviations of noise."""


@dataclass(frozen=True)
class NoiseShare:
    """Noise in the updates of some victims.

    Attributes:
        share: ``(V,)`` share of the update's energy that is noise, 0 to 1; NaN if the update is zero.
        scale: ``(V,)`` standard deviation on every number.
        clip: norm to which updates are clipped before, None if unknown.
    """

    share: Tensor
    scale: Tensor
    clip: float | None = None


def declared_noise(view: RoundView) -> NoiseShare | None:
    """Declared noise in the parameters that clients perturb; None if they declare none, or none that can be there.

    Updates that are too short to hold the noise prove that it is not (`fedleak.core.declared_noise`), so nothing
    follows from its scale.
    """
    noised = [name for name in view.deltas if view.noise_scale(name) > 0]
    if not noised or noise_is_refuted(view):
        return None
    sent, noise, numbers, clips = [], [], [], []
    for name in noised:
        count = sent_numbers(view, name)
        sent.append(view.deltas[name].double().flatten(1).square().sum(1))
        # Noise of standard deviation s on d numbers has an energy of d s^2 on average.
        noise.append(count * view.noise_scale(name) ** 2)
        numbers.append(count)
        clip = view.clip(name)
        if clip is not None:
            clips.append(clip)
    energy = torch.stack(sent).sum(0)
    noise_energy = torch.stack(noise).sum(0)
    share = (noise_energy / energy.masked_fill(energy == 0, torch.nan)).clamp(max=1)
    scale = (noise_energy / torch.stack(numbers).sum(0).clamp(min=1)).sqrt()
    return NoiseShare(share, scale, min(clips, default=None))


def spectral_noise(view: RoundView) -> NoiseShare | None:
    """Noise estimated from the median singular value of each matrix; None if no layer is large enough.

    A few examples change a layer in a few directions; noise changes it in all.

    References:
        [Gavish14], section III-E.
    """
    noise, sent, total = [], [], []
    for name, delta in view.deltas.items():
        if delta.dim() < 3:
            continue
        matrix = delta.double().flatten(2)
        columns = matrix.shape[2]
        # Of a table, only the rows that a client sent count.
        rows = sent_numbers(view, name) / max(columns, 1)
        small = torch.minimum(rows, torch.tensor(float(columns))) < _SMALLEST
        variance = _variance(matrix, rows).masked_fill(small, 0)
        noise.append(variance * rows * columns)
        sent.append(matrix.square().sum((1, 2)).masked_fill(small, 0))
        total.append((rows * columns).masked_fill(small, 0))
    if not total or not float(torch.stack(total).sum()):
        return None
    energy = torch.stack(sent).sum(0)
    noise_energy = torch.stack(noise).sum(0)
    share = (noise_energy / energy.masked_fill(energy == 0, torch.nan)).clamp(max=1)
    scale = (noise_energy / torch.stack(total).sum(0).clamp(min=1)).sqrt()
    return NoiseShare(share, scale)


def proven_noise(view: RoundView) -> NoiseShare | None:
    """Undeclared noise, if the matrices with at least `_LARGE` rows and columns show it; else None.

    They do if the smaller singular values of every client follow the law of white noise, and if the noise of all
    clients has the same scale. Gradients of many examples and steps have no flat spectrum, however little of it can be
    explained.

    References:
        [Marchenko67].
    """
    large = {}
    for name, delta in view.deltas.items():
        if delta.dim() > 2 and name not in view.row_parameters and min(delta.flatten(2).shape[1:]) >= _LARGE:
            large[name] = delta
    if not large or view.victims < 2:
        return None
    for delta in large.values():
        matrix = delta.double().flatten(2)
        all_rows = torch.full((len(matrix),), float(matrix.shape[1]))
        variance = _variance(matrix, all_rows)
        # One scale for all clients, and the spectrum of noise for each.
        if not bool((variance.amin() > 0) & (variance.amax() <= _EQUAL**2 * variance.amin())):
            return None
        if float(_distance(matrix, variance).max()) > _FLAT:
            return None
    return spectral_noise(dataclasses.replace(view, deltas=large))


def _variance(matrix: Tensor, rows: Tensor) -> Tensor:
    """``(V,)`` variance of white noise with the median singular value of zero-padded ``(V, rows, columns)``."""
    # Median of the min(rows, columns) singular values that are not of padding.
    values = torch.linalg.svdvals(matrix)
    columns = matrix.shape[2]
    longer = rows.clamp(min=columns)
    shorter = rows.clamp(max=columns)
    middle = (shorter.long() - 1).clamp(min=0) // 2
    median_value = values.gather(1, middle[:, None])[:, 0]
    # s^2 = sigma_median^2 / (n mu_beta), where mu_beta is the median of the law with the ratio beta of the sides.
    ratios = (shorter / longer).tolist()
    median = torch.tensor([_median(round(ratio, 3)) for ratio in ratios], dtype=torch.float64)
    variance: Tensor = median_value.square() / (longer * median)
    return variance


def _distance(matrix: Tensor, variance: Tensor) -> Tensor:
    """``(V,)`` largest distance between the distribution of the smaller 90% of the eigenvalues and that of noise."""
    shorter, longer = sorted(matrix.shape[1:])
    # Eigenvalues of X X' / n for noise of unit variance, ascending.
    squares = torch.linalg.svdvals(matrix).square().flip(1)
    values = squares / (longer * variance[:, None])
    eigenvalues, below = _law(round(shorter / longer, 3))
    expected = np.interp(values.numpy(), eigenvalues, below, left=0.0, right=1.0)
    # Shares at the middle of each step of the empirical distribution.
    observed = (np.arange(shorter) + 0.5) / shorter
    smaller = int(0.9 * shorter)
    distances = np.abs(expected - observed)[:, :smaller]
    return torch.from_numpy(distances.max(1))


@functools.cache
def _median(ratio: float) -> float:
    """Median of the Marchenko-Pastur law."""
    eigenvalues, below = _law(ratio)
    return float(eigenvalues[np.searchsorted(below, 0.5)])


def _law(ratio: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Marchenko-Pastur distribution: eigenvalues of ``X X^T / n``, X ``(ratio * n, n)`` of unit noise, and shares."""
    # Density proportional to sqrt((b - x) (x - a)) / x between a = (1 - sqrt(ratio))^2 and b = (1 + sqrt(ratio))^2.
    low = (1 - ratio**0.5) ** 2
    high = (1 + ratio**0.5) ** 2
    edges = np.linspace(low, high, 20001)
    middle = (edges[1:] + edges[:-1]) / 2
    density = np.sqrt((high - middle) * (middle - low)) / middle
    return middle, density.cumsum() / density.sum()
