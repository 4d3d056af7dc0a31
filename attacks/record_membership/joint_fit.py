"""Joint fit of an update by the effects of all candidates: a linear mixed model in the space of their Gram matrix."""

import dataclasses
import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

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
_STEPS = np.array([[0.0, 0.0, 0.0], [0.5, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]])
"""From the start of the search to its first simplex."""
_NORMAL_QUARTILES = 1.349
"""Distance of the quartiles of N(0, 1)."""
_PAIRS = 1000
"""Candidates of which the predicted AUC compares all pairs."""
_PARTS = torch.linspace(0, 1, 21, dtype=torch.float64)
"""Tried means and standard deviations of the part of its expected score that a member has."""
_PART_SPREAD = 1.0
"""Standard deviation of the prior of both: of the mean about 1 and the standard deviation about 0."""
_MOST_OFF, _SIGNIFICANT = 0.4, 3.0
"""Part of the number of records, and standard errors, by which the sum of weights may differ from that number."""
_MOST_MISSING = 0.75
"""Part of the number of records that may be missing in that sum after one pass in batches.

In the metric of their order, candidates stand for fewer of the records outside the pool."""
_SPANNED = 0.5
"""Part of an update that candidates span if they resemble its records."""
_LEAST_PART = 0.5
"""Part of a record's effect that must be left by rounding, so that scores are of the record more than of rounding."""
_TIMES_NOISE = 3.0
"""How many times as much of an update as of noise candidates span, at least, if it is made of such records."""
_IN_POOL = (1.0, 0.75, 0.5, 0.25, 0.125)
"""Tried parts of a class's share that are candidates, not other records of the client that resemble them."""


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
        return cls(values.where(values > _ROUNDING[gram.dtype] * values[-1], 0).double(), vectors.double())


@dataclass(frozen=True)
class Fit:
    """What one update says about each candidate.

    Attributes:
        score: ``(M,)`` standardised evidence of a weight above zero: N(0, 1) for a record that is not in the update,
            N(shift, 1) for one that is.
        shift: ``(M,)`` expected score of a record in the update.
        share: ``(M,)`` estimated share of its class's candidates, in units of a record, that the update contains.
        mean: ``(M,)`` posterior mean of each weight, with which the effects together make up the update.
        spread: standard deviation of the weights within a class.
        noise: standard deviation of what the candidates do not explain, in each direction that they span.
        class_spread: standard deviation of the classes' mean weights.
        spanned: square of the norm of the part of the update that the effects span.
        records: number of records in the update.
        total: sum of the weights, which is the number of records if the learner is the clients'.
        total_error: standard error of that sum.
        energy: square of the norm of the update, in the metric of `spanned`; 0 under declared noise, which may be most
            of it.
        numbers: numbers of the update, of which that is the sum of squares.
        seen_part: part of `shift` that a record in the update has as its score, if rounding hides the rest of what it
            adds (`seen_part`).
        in_batches: whether the fit is in the metric of the noise of mini-batches (`batch_order.whitened`).
        approximate: whether the effects are only approximate, so that members' scores have a law of their own.
        member: ``(M,)`` probability of being in the update, of that law (`of_members`); None before.
    """

    score: Tensor
    shift: Tensor
    share: Tensor
    mean: Tensor
    spread: float
    noise: float
    class_spread: float
    spanned: float
    records: int = 0
    total: float = 0.0
    total_error: float = 0.0
    energy: float = 0.0
    numbers: int = 0
    seen_part: float = 1.0
    in_batches: bool = False
    approximate: bool = False
    member: Tensor | None = None

    @property
    def weight(self) -> Tensor:
        """``(M,)`` generalised least-squares estimate of each weight: 1 for a record in the update, 0 for another."""
        return self.score / self.shift

    @property
    def refuted(self) -> bool:
        """Whether the model of the fit does not hold, so that it expects nothing of itself.

        Either rounding hides most of what a record adds to the update (`seen_part`), or the update contradicts the
        clients' steps, so that the learner is another one. Of weights that add to a number of records T of N, with its
        standard error:

        * T is negative, as with a wrong sign, or far above N, as with larger steps;
        * T is far below N though the candidates span most of the update, as with smaller steps. Records outside the
          pool that no candidate resembles take weight away too, but are not spanned;
        * the candidates span hardly more of the update than of noise.

        Under Adam it is not known well enough.
        """
        if self.approximate:
            return False
        if self.seen_part < _LEAST_PART:
            return True
        error = _SIGNIFICANT * self.total_error
        if self.total < -error or self.total - self.records > max(_MOST_OFF * self.records, error):
            return True
        if not self.energy:
            return False
        spanned = self.spanned / self.energy
        of_noise = len(self.score) / max(self.numbers, 1)
        if _TIMES_NOISE * of_noise > 1:  # so many candidates span anything
            return False
        missing = self.records - self.total
        too_few = missing > max(_MOST_OFF * self.records, error)
        if self.in_batches:
            too_few = missing - error > _MOST_MISSING * self.records
        return (too_few and spanned > _SPANNED) or spanned < _TIMES_NOISE * of_noise

    @property
    def log_odds(self) -> Tensor:
        """``(M,)`` posterior log odds: of the evidence, and of the record's class beforehand."""
        return self.evidence + torch.logit(self.share, eps=1e-9)

    def calibrated(self) -> "Fit":
        """The fit with scores in units of their spread over the candidates, if that is larger than 1.

        Most candidates are not in the update, so the quartiles of the scores about their classes' means are those of
        the noise: an empirical null distribution. Where the model of the noise is right, they are those of N(0, 1).
        Members among the candidates widen it a little.

        References:
            B. Efron, "Large-Scale Simultaneous Hypothesis Testing: The Choice of a Null Hypothesis", Journal of the
            American Statistical Association, 2004.
        """
        quartiles = torch.quantile(self.score - self.share * self.shift, torch.tensor([0.25, 0.75]).to(self.score))
        spread = max(float(quartiles[1] - quartiles[0]) / _NORMAL_QUARTILES, 1.0)
        return dataclasses.replace(self, score=self.score / spread, shift=self.shift / spread)

    def of_members(self) -> "Fit":
        """The fit with the law of members' scores that its scores show.

        An effect is right on average, and a member's own differs from it, by the batches in which it was, or by an
        optimizer that is not linear. So a member's score is N(a shift, 1 + (t shift)^2) with ``a`` and ``t`` of the
        largest posterior for a mixture of members, in a part of their classes' shares, and others, whose scores are
        N(0, 1). The shift becomes ``a shift``; where the update says nothing about the candidates, ``a`` tends to 0.
        Members of which the update shows nothing at all, as of none of the batches, cannot be told from records outside
        the pool, and are not expected.

        References:
            B. Efron, "Microarrays, Empirical Bayes and the Two-Groups Model", Statistical Science, 2008.
        """
        variance = 1 + (_PARTS[:, None] * self.shift) ** 2
        best, found = -math.inf, self
        for part, inside in itertools.product(_PARTS.tolist(), _IN_POOL):
            share = (inside * self.share).clamp(1e-6, 1 - 1e-6)
            member = share.log() - variance.log() / 2 - (self.score - part * self.shift).square() / (2 * variance)
            other = (1 - share).log() - self.score.square() / 2
            prior = ((1 - part) ** 2 + _PARTS.square()) / (2 * _PART_SPREAD**2)
            fitted = torch.logaddexp(other, member).sum(1) - prior
            place = int(fitted.argmax())
            if float(fitted[place]) > best:
                best = float(fitted[place])
                found = dataclasses.replace(self, shift=part * self.shift, member=torch.sigmoid(member[place] - other))
        return found

    @property
    def evidence(self) -> Tensor:
        """``(M,)`` log likelihood ratio of a record in the update against one that is not."""
        return self.shift * (self.score - self.shift / 2)


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
        This project; C. R. Henderson, "Best linear unbiased estimation and prediction under a selection model",
        Biometrics, 1975, for mixed models; R. D. Cook, "Detection of influential observation in linear regression",
        Technometrics, 1977, for the omission of one observation by its leverage.
    """
    kept = basis.values > 0
    values, vectors = basis.values[kept], basis.vectors[:, kept]
    seen = (vectors.T @ products.double()) / values.sqrt()  # coordinates of the update in the span of the effects
    of_class = torch.nn.functional.one_hot(torch.unique(classes, return_inverse=True)[1]).double()
    design = (vectors.T @ of_class) * values.sqrt()[:, None]
    model = _Likelihood(values, seen, design, noise, math.sqrt(min(records / len(products), 1.0)))
    spread, left, class_spread = model.largest()
    means, errors, residual = model.means(spread, left, class_spread)
    ratio = left**2 / spread**2
    known = vectors.square() @ (values / (values + ratio))
    unseen = basis.vectors[:, ~kept].square().sum(1) + ratio * (vectors.square() @ (1 / (values + ratio)))
    known, unseen = known.clamp(min=1e-30), unseen.clamp(min=1e-30)
    weights = vectors @ (values.sqrt() * residual / (values + ratio))
    shift = (known / unseen).sqrt() / spread
    score = weights / (known * unseen).sqrt() / spread + (of_class @ means) * shift
    share, mean = of_class @ _positive_part(means, errors), of_class @ means + weights
    return Fit(
        score=score,
        shift=shift,
        share=share,
        mean=mean,
        spread=spread,
        noise=left,
        class_spread=class_spread,
        spanned=float(seen.square().sum()),
        records=records,
        total=float(mean.sum()),
        total_error=model.total_error(of_class.sum(0), spread, left, class_spread),
    )


def seen_part(basis: Basis, found: Fit, places: Tensor, effects: Tensor) -> float:
    """Mean part of its weight of 1 that a fit sees of a candidate, asked about updates that are one effect each.

    A Gram matrix whose rounding errors are covered by a small number on its diagonal gives each effect a direction of
    its own, which no update has. It looks like what distinguishes one record from the others: of records that are
    almost alike, `shift` is mostly this. The effects themselves have no such direction, so the fit gives them less than
    the weight that `shift` is made of.

    Args:
        basis: eigenvectors of the Gram matrix, with that number.
        found: the fit, for its variances.
        places: ``(n,)`` candidates that are asked about.
        effects: ``(M, n)`` inner products of all effects and those of these candidates, without that number.
    """
    kept = basis.values > 0
    values, vectors = basis.values[kept], basis.vectors[:, kept]
    shrunk = vectors[places] / (values + found.noise**2 / found.spread**2)
    expected = (shrunk * vectors[places]) @ values
    seen = (shrunk * (effects.T @ vectors)).sum(1)
    return float((seen / expected.clamp(min=1e-30)).mean())


def without_common_noise(basis: Basis, products: Tensor, classes: Tensor, found: Fit, place: int) -> Tensor:
    """``(M,)`` products of the effects and one client's update, without the noise that it shares with other clients'.

    All clients of a round start from one model, so what a straight path leaves out is alike for them. With the
    variances of a fit, the expected noise of every update is its residual times the noise's share of the variance. That
    of the other clients is averaged, and subtracted with the factor, from 0 to 1, that fits the client's own best.

    Args:
        basis: eigenvectors of the effects' Gram matrix.
        products: ``(M, V)`` inner products of the effects and the updates of all clients of the round.
        classes: ``(M,)`` class of each candidate.
        found: the client's fit with `basis`.
        place: the client's column.
    """
    if products.shape[1] < 2:
        return products[:, place]
    kept = basis.values > 0
    values, vectors = basis.values[kept], basis.vectors[:, kept]
    of_class = torch.nn.functional.one_hot(torch.unique(classes, return_inverse=True)[1]).double()
    seen = (vectors.T @ products) / values.sqrt()[:, None]
    model = _Likelihood(values, seen, (vectors.T @ of_class) * values.sqrt()[:, None], 0.0, 1.0)
    _, _, residual = model.means(found.spread, found.noise, found.class_spread)
    noise = residual * (found.noise**2 / (found.spread**2 * values + found.noise**2))[:, None]
    others = (noise.sum(1) - noise[:, place]) / (products.shape[1] - 1)
    factor = float(noise[:, place] @ others) / max(float(others @ others), 1e-300)
    return vectors @ (values.sqrt() * (seen[:, place] - min(max(factor, 0.0), 1.0) * others))


class _Likelihood:
    """Marginal likelihood of the mixed model in the coordinates of the eigenvectors."""

    def __init__(self, values: Tensor, seen: Tensor, design: Tensor, noise: float, expected: float) -> None:
        self.values, self.seen, self.design, self.noise = values, seen, design, noise
        self.expected = expected
        """Standard deviation of the weights if the pool resembles the client's records."""

    def _at(self, spread: float, left: float, class_spread: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Variances ``(M,)``, class means ``(K,)``, and the precision ``(K, K)`` of the means, after and before."""
        variance = spread**2 * self.values + left**2
        scaled = self.design / variance[:, None]
        count = self.design.shape[1]
        between = class_spread**2
        eye = torch.eye(count, dtype=torch.float64)
        prior = (eye - 1 / (between + count)) / between  # of class_spread^2 I + 1 1'
        precision = self.design.T @ scaled + prior
        return variance, torch.linalg.solve(precision, scaled.T @ self.seen), precision, prior

    def means(self, spread: float, left: float, class_spread: float) -> tuple[Tensor, Tensor, Tensor]:
        """Class means, their standard errors ``(K,)`` each, and the update without them ``(M,)``."""
        _, means, precision, _ = self._at(spread, left, class_spread)
        return means, torch.linalg.inv(precision).diagonal().sqrt(), self.seen - self.design @ means

    def total_error(self, sizes: Tensor, spread: float, left: float, class_spread: float) -> float:
        """Standard error of the sum of all weights, of classes with ``sizes (K,)``, that of the class means."""
        precision = self._at(spread, left, class_spread)[2]
        return math.sqrt(float(sizes @ torch.linalg.solve(precision, sizes)))

    def negative_log(self, spread: float, left: float, class_spread: float) -> float:
        variance, means, precision, prior = self._at(spread, left, class_spread)
        residual = self.seen - self.design @ means
        fitted = variance.log().sum() + (residual.square() / variance).sum() + means @ prior @ means
        surprise = (math.log(spread / self.expected) / _PRIOR_SPREAD) ** 2
        surprise += 2 * class_spread / _MEAN_CLASS_SPREAD
        return (float(fitted + torch.logdet(precision) - torch.logdet(prior)) + surprise) / 2

    def largest(self) -> tuple[float, float, float]:
        """Standard deviations of the weights, of what is left and of the class means, of the largest likelihood."""
        size = float(self.seen.square().mean().sqrt()) or 1.0
        least = max(self.noise, 1e-8 * size, 1e-150)
        low = np.log([_LEAST_SPREAD, least, _LEAST_APART])
        high = np.log([_MOST_SPREAD, max(10 * size, 2 * least), 1.0])

        def objective(logs: np.ndarray) -> float:
            return self.negative_log(*np.exp(np.clip(logs, low, high)).tolist())

        small = self.seen[: max(1, len(self.seen) // 10)].square().mean().sqrt()
        starts = [
            np.clip(np.log([weight, max(float(small), least) * part, class_spread]), low, high)
            for weight, part, class_spread in (
                *((self.expected, 1.0, 0.2), (self.expected, 1e-3, 0.2)),
                *((self.expected, 1.0, 0.02), (0.01, 1.0, 0.02)),
            )
        ]
        start = min(starts, key=objective)
        found = minimize(
            objective,
            start,
            method="Nelder-Mead",
            options={"maxfev": _EVALUATIONS, "xatol": 0.01, "fatol": 0.01, "initial_simplex": start + _STEPS},
        )
        spread, left, class_spread = np.exp(np.clip(found.x, low, high)).tolist()
        return spread, left, class_spread


def _positive_part(means: Tensor, errors: Tensor) -> Tensor:
    """Expected positive part of normal variables, below 1: the share of a class cannot be negative."""
    at = means / errors
    density = torch.exp(-at.square() / 2) / math.sqrt(2 * math.pi)
    share: Tensor = errors * density + means * torch.special.ndtr(at)
    return share.clamp(1e-9, 1 - 1e-6)


def predicted_auc(found: Fit) -> float:
    """AUC of the log odds that a fit expects, if its model holds: a mean over pairs of a member and another record.

    NaN for a fit that refutes its model (`Fit.refuted`).

    The evidence is N(p s^2 - s^2/2, s^2) for a member and N(-s^2/2, s^2) for another record, ``s`` being its shift and
    ``p`` the part of it that rounding leaves (`Fit.seen_part`). With equal shifts and classes the AUC is
    ``Phi(p s / sqrt 2)``; ``s`` is the norm of the record's effect without what the other candidates explain, in units
    of the noise. Of many candidates, `_PAIRS` are compared.

    Of a fit that knows the law of its members' scores (`Fit.of_members`), pairs have the weights of their probabilities
    of being a member and none, and what counts is which of their log odds are larger.
    """
    if found.refuted:
        return math.nan
    step = -(-len(found.shift) // _PAIRS)
    weight = (found.share if found.member is None else found.member).double()[::step]
    if found.member is None:
        half, prior = found.shift.double()[::step].square() / 2, torch.logit(weight, eps=1e-9)
        of_member = (2 * found.seen_part - 1) * half + prior
        gap = of_member[:, None] - (prior - half)
        right = torch.special.ndtr(gap / (2 * (half[:, None] + half)).sqrt().clamp(min=1e-12))
    else:
        odds = found.log_odds.double()[::step]
        right = ((odds[:, None] - odds).sign() + 1) / 2
    pairs = (weight[:, None] * (1 - weight)).fill_diagonal_(0.0)
    return float((pairs * right).sum() / pairs.sum().clamp(min=1e-300))
