"""Privacy loss of a release: the square of the sensitivity over the noise, from clip and noise or from epsilon."""

import math

from fedleak.core.gaussian_budget import declared_precision
from fedleak.core.release import Release
from fedleak.core.view import View


def privacy_loss(release: Release) -> float:
    """``(sensitivity / sigma)^2`` of one send, from clip and noise."""
    if not release.clip:
        return math.inf
    # A client that is replaced moves the sum by two clips, one that leaves by one.
    sensitivity = release.clip
    if release.neighbours == "replace":
        sensitivity = release.clip * 2
    return (sensitivity / release.noise_scale) ** 2


def shared_noise(view: View, release: Release) -> float:
    """Share of a client's own noise in the variance of a sum, by the parameter with the least noise; 1 without a sum.

    The server gets the sum alone, so a client is hidden by the noise of all, if nobody reveals what it added.
    """
    variance = release.noise_scale**2
    of_sums = [summed for summed in view.releases if summed.participants > 1 and summed is not release]
    if not of_sums:
        return 1.0
    added_variances = []
    for name in release.parameters:
        added_variances.append(sum(summed.noise_scale**2 for summed in of_sums if name in summed.parameters))
    return variance / (variance + min(added_variances, default=0.0))


def promised_loss(release: Release) -> float:
    """The loss that is declared: by epsilon and delta, or else by clip and noise; 0 of a release without both."""
    if release.noise_scale == 0 or release.clip is None:
        return 0.0
    if release.epsilon is None or release.delta is None:
        return privacy_loss(release)
    return declared_precision(release.epsilon, release.delta)


def loss_ratio(release: Release) -> float:
    """Privacy loss of a send over the one declared by epsilon and delta; 1 if none is declared."""
    promised = promised_loss(release)
    if not promised:
        return 1.0
    return math.sqrt(privacy_loss(release) / promised)
