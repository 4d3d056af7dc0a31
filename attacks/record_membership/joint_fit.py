"""Joint fit of an update by the effects of all candidates: a linear mixed model in the space of their Gram matrix."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from fedleak.attacks.record_membership.update_fit import Fit

_ROUNDING = {torch.float32: 1e-6, torch.float64: 1e-13}
"""Eigenvalues below this share of the largest are rounding errors of the Gram matrix."""
_LEAST_SPREAD, _MOST_SPREAD = 1e-4, 2.0
"""Bounds of the standard deviation of the weights; that of fair coins is 0.5."""
_LEAST_APART = 1e-3
"""Lower bound of the standard deviation of the classes' means."""
_PRIOR_SPREAD = 0.5
"""Standard deviation of the prior of the logarithm of the weights' standard deviation."""
_MEAN_CLASS_SPREAD = 0.3
"""Mean of the exponential prior of the classes' spread: where noise hides the classes, they are taken to be alike."""
_EVALUATIONS = 150
"""Largest number of likelihoods that the search for the three variances computes."""
_STEPS = np.array(
    [
        [0.0, 0.0, 0.0],
        [0.5, 0.0, 0.0],
        [0.0, -1.0, 0.0],
        [0.0, 0.0, -1.0],
    ]
)
"""From the start of the search to its first simplex: logarithms of the spread, the noise and the class spread."""


@dataclass(frozen=True)
class Basis:
    """Eigenvectors ``(M, M)``, one per column, of the Gram matrix of candidates' effects, and eigenvalues ``(M,)``.

    Eigenvalues that are rounding errors are 0.
    """

    values: Tensor
    vectors: Tensor

    @classmethod
    def of(cls, gram: Tensor) -> "Basis":
        """Basis of a Gram matrix ``(M, M)``; float32 is enough where much of an update is noise."""
        values, vectors = torch.linalg.eigh(gram)
        is_above_rounding = values > _ROUNDING[gram.dtype] * values[-1]
        return cls(values.where(is_above_rounding, 0).double(), vectors.double())

    @property
    def is_spanned(self) -> Tensor:
        """``(M,)`` bool, which eigenvectors are directions that the effects span."""
        return self.values > 0

    def spanned(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues ``(R,)`` and eigenvectors ``(M, R)`` of these directions."""
        return self.values[self.is_spanned], self.vectors[:, self.is_spanned]


def fit(basis: Basis, products: Tensor, classes: Tensor, *, records: int, noise: float = 0.0) -> Fit:
    """Fits an update as ``sum_m w_m a_m + e`` of the effects ``a_m`` of all candidates.

    The weights are 1 for records in the update and 0 for others: random with a mean for each class and one variance,
    which also stand for records in the update that are no candidates, as these resemble the candidates. What is left is
    white noise in the space of the effects, of at least the declared standard deviation. The classes' means vary about
    a common one, which has the prior N(0, 1). All three variances are those of the largest likelihood, that of the
    weights with a lognormal prior about the one of as many records as the update has, and that of the classes' means
    with an exponential prior: in strong noise nothing tells the classes apart, so they must not seem to differ.

    For a candidate m, let S be the covariance of the update without it. The score is
    ``a_m' S^-1 (update - mean) / sqrt(a_m' S^-1 a_m)``, with the mean of all other candidates; from it follows the
    likelihood ratio of weight 1 against 0. Without noise and with no more candidates than numbers this is the solution
    of the linear equations; of two equal candidates, each explains the other, so that both get half.

    Args:
        basis: eigenvectors of the effects' Gram matrix.
        products: ``(M,)`` inner products of the effects and the update.
        classes: ``(M,)`` class of each candidate.
        records: number of records in the update.
        noise: declared standard deviation on each number.

    References:
        This project; [Henderson75], for mixed models; [Cook77], for the omission of one observation by its leverage.
    """
    # Coordinates of the update, and of the classes' summed effects, in the span of the effects: a_m is sqrt(l) v_m,
    # with the eigenvalues l and the row m of the eigenvectors.
    values, vectors = basis.spanned()
    coordinates = (vectors.T @ products.double()) / values.sqrt()
    of_class = torch.nn.functional.one_hot(torch.unique(classes, return_inverse=True)[1]).double()
    design = (vectors.T @ of_class) * values.sqrt()[:, None]
    # The variances of the largest likelihood; weights of which N of M are 1 have a mean square of N / M.
    expected_spread = math.sqrt(min(records / len(products), 1.0))
    model = _Likelihood(values, coordinates, design, noise, expected_spread)
    spread, unexplained, class_spread = model.largest()
    means, errors, residual = model.means(spread, unexplained, class_spread)
    # With the covariance C of the update, a_m' C^-1 a_m spread^2 is the leverage h_m of a candidate, and C - spread^2
    # a_m a_m' that without it. Of one minus the leverage, which is small without noise, no difference is taken.
    ratio = unexplained**2 / spread**2
    leverage = vectors.square() @ (values / (values + ratio))
    outside_span = basis.vectors[:, ~basis.is_spanned].square().sum(1)
    one_minus_leverage = outside_span + ratio * (vectors.square() @ (1 / (values + ratio)))
    leverage = leverage.clamp(min=1e-30)
    one_minus_leverage = one_minus_leverage.clamp(min=1e-30)
    # Posterior means of the weights about their classes' means, spread^2 a_m' C^-1 residual.
    deviations = vectors @ (values.sqrt() * residual / (values + ratio))
    # Both without the candidate, by the formula of Sherman and Morrison: a_m' S^-1 a_m = h / (1 - h) / spread^2. The
    # mean of all other candidates leaves the candidate its own class's mean.
    shift = (leverage / one_minus_leverage).sqrt() / spread
    score = deviations / (leverage * one_minus_leverage).sqrt() / spread + (of_class @ means) * shift
    mean = of_class @ means + deviations
    return Fit(
        score=score,
        shift=shift,
        share=of_class @ _positive_part(means, errors),
        mean=mean,
        spread=spread,
        noise=unexplained,
        class_spread=class_spread,
        spanned=float(coordinates.square().sum()),
        records=records,
        total=float(mean.sum()),
        total_error=model.total_error(of_class.sum(0), spread, unexplained, class_spread),
    )


def seen_part(basis: Basis, update_fit: Fit, probed: Tensor, effects: Tensor) -> float:
    """Mean part of its weight of 1 that a fit sees of a candidate, asked about updates that are one effect each.

    A Gram matrix whose rounding errors are covered by a small number on its diagonal gives each effect a direction of
    its own, which no update has. It looks like what distinguishes one record from the others: of records that are
    almost alike, `shift` is mostly this. The effects themselves have no such direction, so the fit gives them less than
    the weight that `shift` is made of.

    Args:
        basis: eigenvectors of the Gram matrix, with that number.
        update_fit: the fit, for its variances.
        probed: ``(n,)`` candidates that are asked about.
        effects: ``(M, n)`` inner products of all effects and those of these candidates, without that number.
    """
    values, vectors = basis.spanned()
    # The weight that the fit gives to a candidate: of its effect as in the basis, which is the leverage, and as it is.
    shrunk = vectors[probed] / (values + update_fit.noise**2 / update_fit.spread**2)
    leverage = (shrunk * vectors[probed]) @ values
    weight = (shrunk * (effects.T @ vectors)).sum(1)
    return float((weight / leverage.clamp(min=1e-30)).mean())


def without_common_noise(basis: Basis, products: Tensor, classes: Tensor, update_fit: Fit, column: int) -> Tensor:
    """``(M,)`` products of the effects and one client's update, without the noise that it shares with other clients'.

    All clients of a round start from one model, so what a straight path leaves out is alike for them. With the
    variances of a fit, the expected noise of every update is its residual times the noise's share of the variance. That
    of the other clients is averaged, and subtracted with the factor, from 0 to 1, that fits the client's own best.

    Args:
        basis: eigenvectors of the effects' Gram matrix.
        products: ``(M, V)`` inner products of the effects and the updates of all clients of the round.
        classes: ``(M,)`` class of each candidate.
        update_fit: the client's fit with `basis`.
        column: the client's column.
    """
    if products.shape[1] < 2:
        return products[:, column]
    values, vectors = basis.spanned()
    of_class = torch.nn.functional.one_hot(torch.unique(classes, return_inverse=True)[1]).double()
    coordinates = (vectors.T @ products) / values.sqrt()[:, None]
    design = (vectors.T @ of_class) * values.sqrt()[:, None]
    model = _Likelihood(values, coordinates, design, 0.0, 1.0)
    _, _, residual = model.means(update_fit.spread, update_fit.noise, update_fit.class_spread)
    # Expected noise: in each direction, the noise's part of the variance times the residual.
    noise_variance = update_fit.noise**2
    noise = residual * (noise_variance / (update_fit.spread**2 * values + noise_variance))[:, None]
    mean_of_others = (noise.sum(1) - noise[:, column]) / (products.shape[1] - 1)
    # The factor of least squares, and back from coordinates to products.
    factor = float(noise[:, column] @ mean_of_others) / max(float(mean_of_others @ mean_of_others), 1e-300)
    factor = min(max(factor, 0.0), 1.0)
    return vectors @ (values.sqrt() * (coordinates[:, column] - factor * mean_of_others))


class _Likelihood:
    """Marginal likelihood of the mixed model in the coordinates of the eigenvectors.

    With the design D of the classes, the coordinates y have the mean ``D m`` of unknown class means m, of which the
    prior is N(0, class_spread^2 I + 1 1'), and the variances ``spread^2 l + unexplained^2`` with the eigenvalues l.

    Args:
        values: ``(M,)`` eigenvalues of the effects' Gram matrix, all above zero.
        coordinates: ``(M,)`` or ``(M, V)`` coordinates of updates.
        design: ``(M, K)`` coordinates of each class's summed effects.
        declared_noise: standard deviation that what is unexplained has at least.
        expected_spread: standard deviation of the weights if the pool resembles the client's records.
    """

    def __init__(
        self, values: Tensor, coordinates: Tensor, design: Tensor, declared_noise: float, expected_spread: float
    ) -> None:
        self.values = values
        self.coordinates = coordinates
        self.design = design
        self.declared_noise = declared_noise
        self.expected_spread = expected_spread

    def _at(self, spread: float, unexplained: float, class_spread: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Variances ``(M,)``, class means ``(K,)``, and the precision ``(K, K)`` of the means, after and before."""
        variance = spread**2 * self.values + unexplained**2
        scaled = self.design / variance[:, None]
        count = self.design.shape[1]
        class_variance = class_spread**2
        eye = torch.eye(count, dtype=torch.float64)
        # Inverse of class_spread^2 I + 1 1'.
        prior = (eye - 1 / (class_variance + count)) / class_variance
        precision = self.design.T @ scaled + prior
        return variance, torch.linalg.solve(precision, scaled.T @ self.coordinates), precision, prior

    def means(self, spread: float, unexplained: float, class_spread: float) -> tuple[Tensor, Tensor, Tensor]:
        """Class means, their standard errors ``(K,)`` each, and the update without them ``(M,)``."""
        _, means, precision, _ = self._at(spread, unexplained, class_spread)
        errors = torch.linalg.inv(precision).diagonal().sqrt()
        return means, errors, self.coordinates - self.design @ means

    def total_error(self, sizes: Tensor, spread: float, unexplained: float, class_spread: float) -> float:
        """Standard error of the sum of all weights, of classes with ``sizes (K,)``, that of the class means."""
        _, _, precision, _ = self._at(spread, unexplained, class_spread)
        return math.sqrt(float(sizes @ torch.linalg.solve(precision, sizes)))

    def negative_log(self, spread: float, unexplained: float, class_spread: float) -> float:
        """Negative logarithm of the likelihood, without constants, and of the priors of both spreads."""
        variance, means, precision, prior = self._at(spread, unexplained, class_spread)
        residual = self.coordinates - self.design @ means
        squares = (residual.square() / variance).sum()
        fitted = variance.log().sum() + squares + means @ prior @ means
        # Twice the negative logarithms of the lognormal and of the exponential prior.
        surprise = (math.log(spread / self.expected_spread) / _PRIOR_SPREAD) ** 2
        surprise += 2 * class_spread / _MEAN_CLASS_SPREAD
        # The class means are integrated out: log|V + D P^-1 D'| = log|V| + log|D' V^-1 D + P| - log|P|.
        return (float(fitted + torch.logdet(precision) - torch.logdet(prior)) + surprise) / 2

    def largest(self) -> tuple[float, float, float]:
        """Standard deviations of the weights, of what is unexplained and of the class means, of most likelihood."""
        size = float(self.coordinates.square().mean().sqrt()) or 1.0
        # The least noise is what is declared, or what float64 cannot tell from none.
        least_noise = max(self.declared_noise, 1e-8 * size, 1e-150)
        low = np.log([_LEAST_SPREAD, least_noise, _LEAST_APART])
        high = np.log([_MOST_SPREAD, max(10 * size, 2 * least_noise), 1.0])

        def objective(logs: np.ndarray) -> float:
            return self.negative_log(*np.exp(np.clip(logs, low, high)).tolist())

        # The directions of the smallest eigenvalues, which come first, show the noise: effects hardly reach them.
        tenth = max(1, len(self.coordinates) // 10)
        smallest = self.coordinates[:tenth].square().mean().sqrt()
        noise = max(float(smallest), least_noise)
        # Starts with that noise or nearly none, with classes that differ or hardly do, and with weights that hardly
        # vary; the likeliest one is taken.
        starts = [
            np.log([self.expected_spread, noise, 0.2]),
            np.log([self.expected_spread, noise * 1e-3, 0.2]),
            np.log([self.expected_spread, noise, 0.02]),
            np.log([0.01, noise, 0.02]),
        ]
        start = min((np.clip(logs, low, high) for logs in starts), key=objective)
        search = minimize(
            objective,
            start,
            method="Nelder-Mead",
            options={"maxfev": _EVALUATIONS, "xatol": 0.01, "fatol": 0.01, "initial_simplex": start + _STEPS},
        )
        spread, unexplained, class_spread = np.exp(np.clip(search.x, low, high)).tolist()
        return spread, unexplained, class_spread


def _positive_part(means: Tensor, errors: Tensor) -> Tensor:
    """Expected positive part of normal variables, below 1: the share of a class cannot be negative."""
    # E max(x, 0) = s phi(m / s) + m Phi(m / s) for x of N(m, s^2).
    standardised = means / errors
    density = torch.exp(-standardised.square() / 2) / math.sqrt(2 * math.pi)
    share: Tensor = errors * density + means * torch.special.ndtr(standardised)
    return share.clamp(1e-9, 1 - 1e-6)
