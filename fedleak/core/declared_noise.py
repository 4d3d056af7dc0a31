"""Whether updates can hold the noise that clients declare, by their length alone."""

import dataclasses
from collections.abc import Collection
from typing import TypeVar

import numpy as np
import torch
from scipy.stats import chi2
from torch import Tensor

from fedleak.core.view import View

_View = TypeVar("_View", bound=View)

IMPOSSIBLE = 1e-9
"""Probability below which an update that holds the declared noise is not as short as a recorded one."""

FINEST = 2.0**-24
"""Smallest positive number of float16, in which updates may be sent or stored: smaller noise is lost in it."""


def is_last_noise(view: View, name: str) -> bool:
    """Whether all clients add noise to a parameter, and declare nothing after it that could make the update shorter."""
    releases = [release for release in view.releases if name in release.parameters]
    noisy = [index for index, release in enumerate(releases) if release.noise_scale > 0]
    if not noisy:
        return False
    # Few bits: the message is rounded after the noise. Without the server's devices, not all clients add it.
    if any(release.bits is not None or not release.own_devices for release in releases):
        return False
    # A clip after the first noise could make the noisy update shorter.
    return all(release.clip is None for release in releases[noisy[0] + 1 :])


def noise_chances(view: View, names: Collection[str] | None = None) -> Tensor:
    """``(V,)`` largest probability with which updates that hold the declared noise are as short as the recorded ones.

    An update u and noise z of standard deviation s on d numbers have ``||u + z||^2 / s^2`` of a noncentral chi-squared
    law, which is never smaller in distribution than the central one of d degrees of freedom, whatever u is. NaN for a
    client that sent zeros alone, or without declared noise.

    Args:
        view: the updates and the releases.
        names: parameters to test, of those in the view with `is_last_noise` and noise of at least `FINEST`; None for
            all.
    """
    candidates = list(view.deltas)
    if names is not None:
        candidates = [name for name in names if name in view.deltas]
    noised = [name for name in candidates if is_last_noise(view, name) and view.noise_scale(name) >= FINEST]
    # ||u + z||^2 / s^2, and the d degrees of freedom, summed over the parameters.
    energy = torch.zeros(view.victims, dtype=torch.float64)
    numbers = torch.zeros(view.victims, dtype=torch.float64)
    for name in noised:
        squares = view.deltas[name].double().reshape(view.victims, -1).square().sum(1)
        energy += squares / view.noise_scale(name) ** 2
        numbers += sent_numbers(view, name)
    chances = torch.from_numpy(np.asarray(chi2.cdf(energy.numpy(), numbers.clamp(min=1).numpy())))
    # Zeros alone are no update with noise: the client held its message back.
    return chances.masked_fill((energy == 0) | (numbers == 0), torch.nan)


def sent_numbers(view: View, name: str) -> Tensor:
    """``(V,)`` number of values of a parameter that each victim sent."""
    delta = view.deltas[name]
    if name in view.row_parameters:
        return view.served_mask.sum(1).double() * delta[0, 0].numel()
    return torch.full((view.victims,), float(delta[0].numel()), dtype=torch.float64)


def noise_is_refuted(view: View, names: Collection[str] | None = None) -> bool:
    """Whether any of the updates is too short to hold the declared noise; see `noise_chances`."""
    chances = noise_chances(view, names)
    # Bonferroni: any of V clients may be the shortest.
    return bool((chances < IMPOSSIBLE / max(view.victims, 1)).any())


def without_refuted_noise(view: _View) -> _View:
    """The view without the declared noise that its updates are too short to hold: it hides nothing."""
    if not noise_is_refuted(view):
        return view
    releases = []
    for release in view.releases:
        if noise_is_refuted(view, release.parameters):
            release = dataclasses.replace(release, noise_scale=0.0)
        releases.append(release)
    return dataclasses.replace(view, releases=tuple(releases))
