"""Statistics of single clients from sums over changing groups: a Gaussian filter, its bounds and whole numbers."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from fedleak.core.errors import ViewError

Z95 = 1.959963984540054
"""Half the width of a normal interval of 95 %, in standard deviations."""
_SPREADS = tuple(torch.logspace(-1.8, 0, 8, dtype=torch.float64).tolist())
_NOISES = (1e-12, 1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
_DRIFTS = (0.0, 1e-3, 3e-3, 1e-2, 3e-2, 6e-2, 1e-1, 2e-1, 4e-1)
_MOST_COMPARED = 64
"""Kinds, from the most to the least frequent one, by which laws are compared."""
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
_WIDE = 10.0
"""Variance of the mean over all clients before the first sum, over that of a client with one example."""
_USUAL, _SPREAD_OF_SPREADS = 0.2, 1.0
"""Prior of the spread: log-normal, of this median and standard deviation of the logarithm."""
_UNEXPECTED = 0.1
"""Prior probability of a drift or of an error of the sums, each."""


@dataclass(frozen=True)
class SumsOf:
    """Sums of one statistic of K kinds, round after round.

    Attributes:
        weights: per round ``(G, C)`` float64, weight of each client in each sum; each row sums to one.
        observed: per round ``(G, K)`` weighted means of the clients' statistics.
        noise: per round, variance of the error of the observed numbers as the attack on the sum predicts it; empty for
            none.
        declared: whether clients add noise, so that the error is that of `noise`; otherwise it is at least that.
    """

    weights: Sequence[Tensor]
    observed: Sequence[Tensor]
    noise: Sequence[float] = ()
    declared: bool = False

    def each(self) -> Iterator[tuple[Tensor, Tensor, float]]:
        """Weights, means and variance of the noise of each round."""
        return zip(self.weights, self.observed, self.noise or [0.0] * len(self.weights), strict=True)

    @property
    def common_error(self) -> float:
        """Variance of the error that the sums of all rounds may have in common: that of the attack on a single one.

        What an attack does not know of the clients (how their classes answer, what several steps change) is the same in
        all rounds, so that its error does not average out. Declared noise is drawn anew in every round, and does.
        """
        return 0.0 if self.declared or not self.noise else sum(self.noise) / len(self.noise)

    def first(self, rounds: int) -> "SumsOf":
        """Those of the first rounds."""
        return SumsOf(self.weights[:rounds], self.observed[:rounds], self.noise[:rounds], self.declared)


@dataclass(frozen=True)
class Law:
    """How clients' statistics differ, how they change from round to round, and the error of the sums.

    Attributes:
        spread: variance of a client's statistic about the mean, over that of a client with one example.
        error: variance of the error of an observed mean, over that of a client with one example.
        drift: share of the statistic that is new from one round to the next.
    """

    spread: float
    error: float
    drift: float = 0.0


@dataclass(frozen=True)
class Posterior:
    """Normal law of each client's statistic given the sums.

    Attributes:
        mean: ``(C, K)``.
        covariance: ``(C, C)``, in units of `scale`.
        scale: ``(K,)`` variance of each kind for a covariance of 1.
    """

    mean: Tensor
    covariance: Tensor
    scale: Tensor

    @property
    def deviation(self) -> Tensor:
        """``(C, K)`` standard deviations."""
        return (self.covariance.diagonal().clamp(min=0)[:, None] * self.scale).sqrt()

    def with_common_error(self, variance: float) -> "Posterior":
        """The law if all sums also have one unknown error, of some variance.

        As the weights of a sum add up to one, it moves the estimates of all clients by itself, in every solution.
        """
        return Posterior(self.mean, self.covariance + variance / self.scale.mean(), self.scale)


def laws(declared: bool) -> list[Law]:
    """Every law that is compared; under declared noise the error is that."""
    errors = (0.0,) if declared else _NOISES
    return [Law(*values) for values in itertools.product(_SPREADS, errors, _DRIFTS)]


def deviations_after(weights: Sequence[Tensor], law: Law) -> Tensor:
    """``(T, C)`` standard deviation of each client's statistic, of a scale of 1, after each round: no sum is needed."""
    spread, drift, error = (torch.tensor([value], dtype=torch.float64) for value in (law.spread, law.drift, law.error))
    state, found = _State.start(weights[0].shape[1], spread), []
    for own in weights:
        state = state.moved(drift, spread)
        state, _ = state.updated(own, error, None)
        found.append(state.of_clients()[1].diagonal().clamp(min=0).sqrt())
    return torch.stack(found)


def posterior(sums: SumsOf, law: Law | None = None) -> tuple[Posterior, Law]:
    """The law of each client's statistic in the last round, under a law or the most likely one of `laws`.

    The statistic of a client is ``mean + u``, with u normal, of variance ``spread * scale``; from round to round u
    becomes ``(1 - drift) u`` plus a normal step that keeps its variance. The scale of a kind with mean m is that of a
    client with one example, ``m (1 - m)``; under declared noise, which is equal for all kinds, that of equally frequent
    kinds. Nothing is assumed of the mean over the clients. The likelihood is that of the innovations of a Kalman
    filter, and drift and error each have their smallest value with a prior probability of 0.9.

    References:
        Kalman, "A New Approach to Linear Filtering and Prediction Problems", 1960; Schweppe, "Evaluation of Likelihood
        Functions for Gaussian Signals", 1965.
    """
    mean = torch.cat(list(sums.observed)).mean(0)
    scale = (mean * (1 - mean)).clamp(min=1e-12)
    if sums.declared:
        scale = torch.full_like(scale, (1 - 1 / len(scale)) / len(scale))
    if law is None:
        law = _most_likely(sums, mean, scale)
    spread, drift, error = (torch.tensor([value], dtype=torch.float64) for value in (law.spread, law.drift, law.error))
    state = _State.start(sums.weights[0].shape[1], spread, len(mean))
    for weights, observed, noise in sums.each():
        state = state.moved(drift, spread)
        state, _ = state.updated(weights, error + noise / scale.mean(), observed - mean)
    deviation, covariance = state.of_clients()
    return Posterior(mean + deviation, covariance, scale), law


def _most_likely(sums: SumsOf, mean: Tensor, scale: Tensor) -> Law:
    tried = laws(sums.declared)
    spread, error, drift = torch.tensor([(one.spread, one.error, one.drift) for one in tried]).double().T
    ranked = mean.argsort(descending=True)[: max(int((mean > 0).sum()), 1)]
    kinds = ranked[torch.linspace(0, len(ranked) - 1, min(_MOST_COMPARED, len(ranked))).round().long()]
    state, likelihood = _State.start(sums.weights[0].shape[1], spread, len(kinds)), torch.zeros(len(tried)).double()
    root = scale[kinds].sqrt()
    for weights, observed, noise in sums.each():
        state = state.moved(drift, spread)
        state, own = state.updated(weights, error + noise / scale.mean(), (observed - mean)[:, kinds] / root)
        likelihood += own
    likelihood += _log_prior(drift) + _log_prior(error)
    likelihood -= ((spread / _USUAL).log() / _SPREAD_OF_SPREADS).square() / 2
    return tried[int(likelihood.argmax())]


def _log_prior(values: Tensor) -> Tensor:
    """``(H,)`` log prior of values of which the smallest is expected."""
    others = len(torch.unique(values)) - 1
    unexpected = math.log(_UNEXPECTED / max(others, 1))
    return torch.where(values == values.min(), math.log(1 - _UNEXPECTED), unexpected)


@dataclass(frozen=True)
class _State:
    """Mean ``(H, C + 1, K)`` and covariance ``(H, C + 1, C + 1)`` of a filter under each of H laws.

    The last entry is the mean over all clients, the others are the clients' differences from it.
    """

    mean: Tensor
    covariance: Tensor

    @classmethod
    def start(cls, clients: int, spread: Tensor, kinds: int = 0) -> "_State":
        variances = torch.full((len(spread), clients + 1), _WIDE, dtype=torch.float64)
        variances[:, :-1] = spread[:, None]
        return cls(torch.zeros(len(spread), clients + 1, kinds, dtype=torch.float64), torch.diag_embed(variances))

    def moved(self, drift: Tensor, spread: Tensor) -> "_State":
        """One round later: a share ``drift (H,)`` of the data is new, and the variance stays ``spread (H,)``."""
        kept = (1 - drift)[:, None].repeat(1, self.mean.shape[1])
        kept[:, -1] = 1
        covariance = self.covariance * kept[:, :, None] * kept[:, None, :]
        covariance.diagonal(dim1=1, dim2=2).add_((1 - kept.square()) * spread[:, None])
        return _State(self.mean * kept[:, :, None], covariance)

    def of_clients(self) -> tuple[Tensor, Tensor]:
        """Mean ``(C, K)`` and covariance ``(C, C)`` of the clients' statistics under the first law."""
        clients = self.mean.shape[1] - 1
        added = torch.cat([torch.eye(clients), torch.ones(clients, 1)], dim=1).double()
        return added @ self.mean[0], added @ self.covariance[0] @ added.T

    def updated(self, weights: Tensor, error: Tensor, observed: Tensor | None) -> tuple["_State", Tensor]:
        """After sums ``(G, K)`` with errors of a variance ``(H,)``; and their log-likelihood ``(H,)``."""
        weights = torch.cat([weights, weights.new_ones(len(weights), 1)], dim=1)
        across = self.covariance @ weights.T  # (H, C + 1, G)
        inner = weights @ across
        inner.diagonal(dim1=1, dim2=2).add_(error[:, None].clamp(min=1e-14))
        factor = torch.linalg.cholesky(inner)
        gain = torch.cholesky_solve(across.mT, factor).mT
        # Joseph's form keeps the covariance positive.
        left = torch.eye(weights.shape[1], dtype=torch.float64) - gain @ weights
        covariance = left @ self.covariance @ left.mT + error[:, None, None] * (gain @ gain.mT)
        covariance = (covariance + covariance.mT) / 2
        if observed is None:
            return _State(self.mean, covariance), error.new_zeros(len(error))
        off = observed - weights @ self.mean
        whitened = torch.linalg.solve_triangular(factor, off, upper=False)
        log_volume = 2 * factor.diagonal(dim1=1, dim2=2).log().sum(1)
        likelihood = -(whitened.square().sum((1, 2)) + observed.shape[1] * log_volume) / 2
        return _State(self.mean + gain @ off, covariance), likelihood


def at_least_zero(found: Posterior, largest: Tensor | None = None) -> Tensor:
    """``(C, K)`` most likely statistics that are not negative.

    Where ``largest (C, K)`` is 0 the statistic is 0; other values of it do not count.

    References:
        Lawson and Hanson, "Solving Least Squares Problems", 1974, chapter 23.
    """
    values, vectors = torch.linalg.eigh(found.covariance)
    root = (vectors / values.clamp(min=1e-13 * float(values[-1].clamp(min=1e-12))).sqrt()).mT.numpy()
    mean, result = found.mean.numpy(), found.mean.clone().numpy()
    zero = np.zeros(mean.shape, dtype=bool) if largest is None else (largest == 0).numpy()
    for kind in np.flatnonzero((mean < 0).any(0) | (zero & (mean != 0)).any(0)):
        free = ~zero[:, kind]
        result[:, kind] = 0
        if free.any():
            result[free, kind] = nnls(root[:, free], root @ mean[:, kind])[0]
    return torch.from_numpy(result)


def whole_numbers_of(found: Posterior, shares: Tensor, examples: Tensor) -> tuple[Tensor, Tensor]:
    """Shares ``(C, K)`` in which clients whose counts are certain have whole numbers of examples, and which ``(C,)``.

    Integer bootstrapping: the client whose counts have the smallest variance comes first. They are taken as known,
    which corrects the others, if the probability that all of them round to the right ones is 0.95 or more, they are no
    further from whole numbers than their law allows, and the whole numbers sum to its number of examples.

    Args:
        found: law of the shares.
        shares: estimates of the clients that are not rounded.
        examples: ``(C,)`` number of each client's examples.

    References:
        Teunissen, "Success probability of integer GPS ambiguity rounding and bootstrapping", 1998.
    """
    mean, covariance = found.mean.clone(), found.covariance.clone()
    shares, certain = shares.clone(), torch.zeros(len(mean), dtype=torch.bool)
    counts = examples.double()
    left = set(range(len(mean)))
    while left:
        variances = covariance.diagonal().clamp(min=0) * counts.square()
        for client in sorted(left, key=lambda number: float(variances[number])):
            deviation = (variances[client] * found.scale).sqrt()
            right = torch.erf(0.5 / (deviation.clamp(min=1e-12) * math.sqrt(2))).log().sum().exp()
            if float(right) < _CERTAIN:
                return shares, certain  # and so are all that follow
            estimated = mean[client] * counts[client]
            rounded = estimated.round()
            is_near = bool(probability_off_whole(estimated, deviation + _NUMERICAL) >= _UNLIKELY)
            if is_near and bool((rounded >= 0).all()) and int(rounded.sum()) == int(counts[client]):
                break
        else:
            return shares, certain
        shares[client], certain[client] = rounded / counts[client], True
        left.remove(client)
        variance = covariance[client, client].clamp(min=0)
        if float(variance) > 1e-13:
            gain = covariance[:, client] / variance
            mean = mean + gain[:, None] * (shares[client] - mean[client])
            covariance = covariance - gain[:, None] * covariance[client]
    return shares, certain


def is_refuted(found: Posterior, examples: Tensor) -> bool:
    """Whether the law of the shares cannot be right: counts are far from whole numbers, or far below zero.

    An error that the sums of all rounds have in common leaves no residual, but moves all clients' counts off the whole
    numbers, unless it is itself a whole number of examples of every client.
    """
    counts = examples.double()[:, None]
    estimated, deviation = found.mean * counts, found.deviation * counts + _NUMERICAL
    # Each client is asked, and the clients' distances depend on one another.
    is_off_whole = probability_off_whole(estimated, deviation) < _UNLIKELY / len(counts)
    return bool(is_off_whole.any() or (estimated < -_FAR * deviation).any())


def probability_off_whole(estimated: Tensor, deviation: Tensor) -> Tensor:
    """Probability that normal errors leave numbers ``(..., K)`` of true whole ones so far from these, or further.

    Their squared distances in standard deviations are summed over the last dimension, which has a chi-square law.
    """
    distances = ((estimated - estimated.round()) / deviation).square().sum(-1)
    freedom = torch.full_like(distances, estimated.shape[-1])
    probability: Tensor = torch.special.gammaincc(freedom / 2, distances / 2)
    return probability


def within_common_error(found: Posterior, examples: Tensor) -> tuple[Tensor, Tensor]:
    """Shares ``(C, K)`` and half their intervals of 95 %, if all sums have one unknown error of any size.

    Say kind k is estimated too large by b_k in all clients. No share is negative, so b_k is at most the lowest estimate
    u_k of the kind. The errors sum to zero, as true and estimated shares both sum to one, so b_k is at least u_k less
    the sum of all u. Where each kind is absent in some client, that sum is zero and the error is known.

    How far the counts are from whole numbers is added to their standard deviation, for the part of the error that
    differs between clients. Where an interval of each kind holds one whole number, the shares are those.
    """
    counts, kinds = examples.double()[:, None], found.mean.shape[1]
    distances = found.mean * counts - (found.mean * counts).round()
    deviation = (found.deviation.square() + distances.square().mean() / counts.square()).sqrt()
    highest_error = (found.mean + _LOWEST * found.deviation).amin(0)
    spare = highest_error.sum().clamp(min=0)
    # The errors that sum to zero, each as far below its bound as the others.
    shares = (found.mean - highest_error + spare / kinds).clamp(min=0)
    shares = shares / shares.sum(1, keepdim=True).clamp(min=1e-12)
    half = spare * (1 - 1 / kinds) + Z95 * deviation
    rounded = (shares * counts).round()
    is_whole = (half * counts < 0.5).all(1) & (rounded.sum(1) == counts[:, 0])
    return torch.where(is_whole[:, None], rounded / counts, shares), half


def rank(weights: Sequence[Tensor]) -> int:
    """Rank of the participation in all rounds.

    Raises:
        ViewError: there is no sum.
    """
    if not weights:
        raise ViewError("expected sums, got none")
    return int(torch.linalg.matrix_rank(torch.cat(list(weights))))
