"""What bounds and whole numbers of examples add to the law of clients' shares, and whether they contradict it."""

import math

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from fedleak.attacks.sums_over_rounds.tracking import Z95, Posterior

_CERTAIN = 0.95
"""Probability that all numbers of a client round to the right whole ones, from which on they are rounded."""
_FAR = 5.0
"""Standard deviations below zero beyond which a count is off by something else than its law: 3e-7 of right ones are."""
_UNLIKELY = 1e-3
"""Probability, under the law of a client's counts, of distances from whole numbers as large as theirs or larger, below
which they are not rounded."""
_NUMERICAL = 1e-4
"""Distance from a whole number of examples that the arithmetic may cause."""
_LOWEST = 3.0
"""Standard deviations that are added to the lowest estimate of a kind, so that it is above the truth of that client."""


def at_least_zero(law: Posterior, largest: Tensor | None = None) -> Tensor:
    """``(C, K)`` most likely statistics that are not negative.

    Where ``largest (C, K)`` is 0 the statistic is 0; other values of it do not count.

    References:
        [Lawson74], chapter 23.
    """
    # The most likely x minimises |R (x - mean)|^2 with R' R the inverse of the covariance. Directions that are certain
    # to float64 get a variance that does not overflow it.
    variances, directions = torch.linalg.eigh(law.covariance)
    least_variance = 1e-13 * float(variances[-1].clamp(min=1e-12))
    root = (directions / variances.clamp(min=least_variance).sqrt()).mT.numpy()
    mean = law.mean.numpy()
    statistics = law.mean.clone().numpy()
    is_zero = np.zeros(mean.shape, dtype=bool)
    if largest is not None:
        is_zero = (largest == 0).numpy()
    # Kinds whose mean has no negative number, and none where there must be zero, are most likely as they are.
    is_impossible = (mean < 0) | (is_zero & (mean != 0))
    for kind in np.flatnonzero(is_impossible.any(0)):
        free = ~is_zero[:, kind]
        statistics[:, kind] = 0
        if free.any():
            statistics[free, kind] = nnls(root[:, free], root @ mean[:, kind])[0]
    return torch.from_numpy(statistics)


def whole_numbers_of(law: Posterior, shares: Tensor, examples: Tensor) -> tuple[Tensor, Tensor]:
    """Shares ``(C, K)`` in which clients whose counts are certain have whole numbers of examples, and which ``(C,)``.

    Integer bootstrapping: the client whose counts have the smallest variance comes first. They are taken as known,
    which corrects the others, if the probability that all of them round to the right ones is 0.95 or more, they are no
    further from whole numbers than their law allows, and the whole numbers sum to its number of examples.

    Args:
        law: law of the shares.
        shares: estimates of the clients that are not rounded.
        examples: ``(C,)`` number of each client's examples.

    References:
        [Teunissen98].
    """
    mean = law.mean.clone()
    covariance = law.covariance.clone()
    shares = shares.clone()
    certain = torch.zeros(len(mean), dtype=torch.bool)
    counts = examples.double()
    undecided = set(range(len(mean)))
    while undecided:
        # The next client: that of the smallest variance whose counts are near whole numbers.
        variances = covariance.diagonal().clamp(min=0) * counts.square()
        for client in sorted(undecided, key=lambda number: float(variances[number])):
            deviation = (variances[client] * law.scale).sqrt()
            # A normal error rounds to the right number with a probability of erf(0.5 / (s sqrt 2)).
            each_right = torch.erf(0.5 / (deviation.clamp(min=1e-12) * math.sqrt(2)))
            all_right = each_right.log().sum().exp()
            if float(all_right) < _CERTAIN:
                return shares, certain  # and so are all that follow
            estimated = mean[client] * counts[client]
            rounded = estimated.round()
            is_near = bool(probability_off_whole(estimated, deviation + _NUMERICAL) >= _UNLIKELY)
            is_possible = bool((rounded >= 0).all()) and int(rounded.sum()) == int(counts[client])
            if is_near and is_possible:
                break
        else:
            return shares, certain
        shares[client] = rounded / counts[client]
        certain[client] = True
        undecided.remove(client)
        # The law of all others given this client's shares.
        variance = covariance[client, client].clamp(min=0)
        if float(variance) > 1e-13:
            gain = covariance[:, client] / variance
            mean = mean + gain[:, None] * (shares[client] - mean[client])
            covariance = covariance - gain[:, None] * covariance[client]
    return shares, certain


def is_refuted(law: Posterior, examples: Tensor) -> bool:
    """Whether the law of the shares cannot be right: counts are far from whole numbers, or far below zero.

    An error that the sums of all rounds have in common leaves no residual, but moves all clients' counts off the whole
    numbers, unless it is itself a whole number of examples of every client.
    """
    counts = examples.double()[:, None]
    estimated = law.mean * counts
    deviation = law.deviation * counts + _NUMERICAL
    # Each client is asked, and the clients' distances depend on one another: Bonferroni's bound.
    is_off_whole = probability_off_whole(estimated, deviation) < _UNLIKELY / len(counts)
    is_far_below_zero = estimated < -_FAR * deviation
    return bool(is_off_whole.any() or is_far_below_zero.any())


def probability_off_whole(estimated: Tensor, deviation: Tensor) -> Tensor:
    """Probability that normal errors leave numbers ``(..., K)`` of true whole ones so far from these, or further.

    Their squared distances in standard deviations are summed over the last dimension, which has a chi-square law.
    """
    distances = ((estimated - estimated.round()) / deviation).square().sum(-1)
    freedom = torch.full_like(distances, estimated.shape[-1])
    probability: Tensor = torch.special.gammaincc(freedom / 2, distances / 2)
    return probability


def within_common_error(law: Posterior, examples: Tensor) -> tuple[Tensor, Tensor]:
    """Shares ``(C, K)`` and half their intervals of 95 %, if all sums have one unknown error of any size.

    Say kind k is estimated too large by b_k in all clients. No share is negative, so b_k is at most the lowest estimate
    u_k of the kind. The errors sum to zero, as true and estimated shares both sum to one, so b_k is at least u_k less
    the sum of all u. Where each kind is absent in some client, that sum is zero and the error is known.

    How far the counts are from whole numbers is added to their standard deviation, for the part of the error that
    differs between clients. Where an interval of each kind holds one whole number, the shares are those.
    """
    counts = examples.double()[:, None]
    kinds = law.mean.shape[1]
    distances = law.mean * counts - (law.mean * counts).round()
    deviation = (law.deviation.square() + distances.square().mean() / counts.square()).sqrt()
    # The bounds u_k of the errors, and by how much they exceed errors that sum to zero.
    highest_error = (law.mean + _LOWEST * law.deviation).amin(0)
    spare = highest_error.sum().clamp(min=0)
    # The errors that sum to zero, each as far below its bound as the others.
    shares = (law.mean - highest_error + spare / kinds).clamp(min=0)
    shares = shares / shares.sum(1, keepdim=True).clamp(min=1e-12)
    # An error b_k = u_k - spare / K lies between u_k - spare and u_k; the farther end is spare (1 - 1 / K) away.
    half = spare * (1 - 1 / kinds) + Z95 * deviation
    rounded = (shares * counts).round()
    is_whole = (half * counts < 0.5).all(1) & (rounded.sum(1) == counts[:, 0])
    return torch.where(is_whole[:, None], rounded / counts, shares), half
