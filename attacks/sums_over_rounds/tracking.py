"""Statistics of single clients from sums over changing groups: a Gaussian filter and its likeliest law."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.core.errors import ViewError

Z95 = 1.959963984540054
"""Half the width of a normal interval of 95 %, in standard deviations."""
_SPREADS = tuple(torch.logspace(-1.8, 0, 8, dtype=torch.float64).tolist())
"""Spreads that are compared; 1 is that of clients with one example each."""
_ERRORS = (1e-12, 1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
"""Errors that are compared, from that of float64 to sums that say little."""
_DRIFTS = (0.0, 1e-3, 3e-3, 1e-2, 3e-2, 6e-2, 1e-1, 2e-1, 4e-1)
"""Drifts that are compared, from data that stay to data of which nearly half are new in each round."""
_MOST_COMPARED = 64
"""Kinds, from the most to the least frequent one, by which laws are compared."""
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
        if self.declared or not self.noise:
            return 0.0
        return sum(self.noise) / len(self.noise)

    def first(self, rounds: int) -> "SumsOf":
        """Those of the first rounds."""
        return SumsOf(
            weights=self.weights[:rounds],
            observed=self.observed[:rounds],
            noise=self.noise[:rounds],
            declared=self.declared,
        )


@dataclass(frozen=True)
class ClientLaw:
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


def laws(declared: bool) -> list[ClientLaw]:
    """Every law that is compared; under declared noise the error is that."""
    errors = (0.0,) if declared else _ERRORS
    return [
        ClientLaw(spread=spread, error=error, drift=drift)
        for spread, error, drift in itertools.product(_SPREADS, errors, _DRIFTS)
    ]


def _as_tensors(law: ClientLaw) -> tuple[Tensor, Tensor, Tensor]:
    """Spread, error and drift ``(1,)`` of the one law of a filter."""
    spread = torch.tensor([law.spread], dtype=torch.float64)
    error = torch.tensor([law.error], dtype=torch.float64)
    drift = torch.tensor([law.drift], dtype=torch.float64)
    return spread, error, drift


def deviations_after(weights: Sequence[Tensor], law: ClientLaw) -> Tensor:
    """``(T, C)`` standard deviation of each client's statistic, of a scale of 1, after each round: no sum is needed."""
    spread, error, drift = _as_tensors(law)
    state = _State.start(weights[0].shape[1], spread)
    deviations = []
    for round_weights in weights:
        state = state.moved(drift, spread)
        state, _ = state.updated(round_weights, error, None)
        _, covariance = state.of_clients()
        deviations.append(covariance.diagonal().clamp(min=0).sqrt())
    return torch.stack(deviations)


def posterior(sums: SumsOf, law: ClientLaw | None = None) -> tuple[Posterior, ClientLaw]:
    """The law of each client's statistic in the last round, under a law or the most likely one of `laws`.

    The statistic of a client is ``mean + u``, with u normal, of variance ``spread * scale``; from round to round u
    becomes ``(1 - drift) u`` plus a normal step that keeps its variance. The scale of a kind with mean m is that of a
    client with one example, ``m (1 - m)``; under declared noise, which is equal for all kinds, that of equally frequent
    kinds. Nothing is assumed of the mean over the clients. The likelihood is that of the innovations of a Kalman
    filter, and drift and error each have their smallest value with a prior probability of 0.9.

    References:
        [Kalman60]; [Schweppe65].
    """
    mean = torch.cat(list(sums.observed)).mean(0)
    # Variance of the shares of a client with one example: m (1 - m), or 1 / K (1 - 1 / K).
    scale = (mean * (1 - mean)).clamp(min=1e-12)
    if sums.declared:
        scale = torch.full_like(scale, (1 - 1 / len(scale)) / len(scale))
    if law is None:
        law = _most_likely(sums, mean, scale)
    spread, error, drift = _as_tensors(law)
    # The filter is of differences from the mean of all sums; errors are in units of the mean scale.
    state = _State.start(sums.weights[0].shape[1], spread, len(mean))
    for weights, observed, noise in sums.each():
        state = state.moved(drift, spread)
        state, _ = state.updated(weights, error + noise / scale.mean(), observed - mean)
    deviation, covariance = state.of_clients()
    return Posterior(mean + deviation, covariance, scale), law


def _most_likely(sums: SumsOf, mean: Tensor, scale: Tensor) -> ClientLaw:
    """The law of largest posterior, by one filter that runs under all laws at once."""
    compared = laws(sums.declared)
    spread, error, drift = torch.tensor([(law.spread, law.error, law.drift) for law in compared]).double().T
    # Of many kinds (words), frequent and rare ones alike.
    occurring = mean.argsort(descending=True)[: max(int((mean > 0).sum()), 1)]
    ranks = torch.linspace(0, len(occurring) - 1, min(_MOST_COMPARED, len(occurring)))
    kinds = occurring[ranks.round().long()]
    state = _State.start(sums.weights[0].shape[1], spread, len(kinds))
    log_posterior = torch.zeros(len(compared)).double()
    # In units of its standard deviation, each kind has the same law.
    kind_deviation = scale[kinds].sqrt()
    for weights, observed, noise in sums.each():
        state = state.moved(drift, spread)
        standardised = (observed - mean)[:, kinds] / kind_deviation
        state, log_likelihood = state.updated(weights, error + noise / scale.mean(), standardised)
        log_posterior += log_likelihood
    log_posterior += _log_prior(drift) + _log_prior(error)
    log_posterior -= ((spread / _USUAL).log() / _SPREAD_OF_SPREADS).square() / 2
    return compared[int(log_posterior.argmax())]


def _log_prior(values: Tensor) -> Tensor:
    """``(H,)`` log prior of values of which the smallest is expected, and all larger ones are equally unexpected."""
    larger_values = len(torch.unique(values)) - 1
    unexpected = math.log(_UNEXPECTED / max(larger_values, 1))
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
        """Before the first sum: clients' differences with a variance ``spread (H,)``, and a mean that is not known."""
        variances = torch.full((len(spread), clients + 1), _WIDE, dtype=torch.float64)
        variances[:, :-1] = spread[:, None]
        mean = torch.zeros(len(spread), clients + 1, kinds, dtype=torch.float64)
        return cls(mean, torch.diag_embed(variances))

    def moved(self, drift: Tensor, spread: Tensor) -> "_State":
        """One round later: a share ``drift (H,)`` of the data is new, and the variance stays ``spread (H,)``."""
        # Clients' differences shrink by 1 - drift; the mean over all clients, the last entry, does not drift.
        factor = (1 - drift)[:, None].repeat(1, self.mean.shape[1])
        factor[:, -1] = 1
        covariance = self.covariance * factor[:, :, None] * factor[:, None, :]
        covariance.diagonal(dim1=1, dim2=2).add_((1 - factor.square()) * spread[:, None])
        return _State(self.mean * factor[:, :, None], covariance)

    def of_clients(self) -> tuple[Tensor, Tensor]:
        """Mean ``(C, K)`` and covariance ``(C, C)`` of the clients' statistics under the first law."""
        clients = self.mean.shape[1] - 1
        # A client's statistic is its difference and the mean over all clients.
        sum_of_both = torch.cat([torch.eye(clients), torch.ones(clients, 1)], dim=1).double()
        return sum_of_both @ self.mean[0], sum_of_both @ self.covariance[0] @ sum_of_both.T

    def updated(self, weights: Tensor, error: Tensor, observed: Tensor | None) -> tuple["_State", Tensor]:
        """After sums ``(G, K)`` with errors of a variance ``(H,)``; and their log-likelihood ``(H,)``."""
        # The weights of a sum add up to one, so that the mean over all clients has the weight 1.
        weights = torch.cat([weights, weights.new_ones(len(weights), 1)], dim=1)
        # Kalman's gain P W' (W P W' + error)^-1.
        cross_covariance = self.covariance @ weights.T  # (H, C + 1, G)
        innovation_covariance = weights @ cross_covariance
        innovation_covariance.diagonal(dim1=1, dim2=2).add_(error[:, None].clamp(min=1e-14))
        factor = torch.linalg.cholesky(innovation_covariance)
        gain = torch.cholesky_solve(cross_covariance.mT, factor).mT
        # Joseph's form keeps the covariance positive.
        remaining = torch.eye(weights.shape[1], dtype=torch.float64) - gain @ weights
        covariance = remaining @ self.covariance @ remaining.mT + error[:, None, None] * (gain @ gain.mT)
        covariance = (covariance + covariance.mT) / 2
        if observed is None:
            return _State(self.mean, covariance), error.new_zeros(len(error))
        # All kinds have the same covariance, so its logarithm counts once for each.
        innovation = observed - weights @ self.mean
        whitened = torch.linalg.solve_triangular(factor, innovation, upper=False)
        log_determinant = 2 * factor.diagonal(dim1=1, dim2=2).log().sum(1)
        log_likelihood = -(whitened.square().sum((1, 2)) + observed.shape[1] * log_determinant) / 2
        return _State(self.mean + gain @ innovation, covariance), log_likelihood


def rank(weights: Sequence[Tensor]) -> int:
    """Rank of the participation in all rounds.

    Raises:
        ViewError: there is no sum.
    """
    if not weights:
        raise ViewError("expected sums, got none")
    return int(torch.linalg.matrix_rank(torch.cat(list(weights))))
