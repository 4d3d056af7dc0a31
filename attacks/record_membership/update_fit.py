"""What the fit of an update says about each candidate: scores, their law, whether it holds, and the AUC it expects."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

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
            adds (`joint_fit.seen_part`).
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

        Either rounding hides most of what a record adds to the update (`joint_fit.seen_part`), or the update
        contradicts the clients' steps, so that the learner is another one. Of weights that add to a number of records T
        of N, with its standard error:

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
        # A negative number of records, or far too many of them.
        error = _SIGNIFICANT * self.total_error
        if self.total < -error or self.total - self.records > max(_MOST_OFF * self.records, error):
            return True
        # The other two need the size of the update.
        if not self.energy:
            return False
        spanned = self.spanned / self.energy
        spanned_of_noise = len(self.score) / max(self.numbers, 1)  # M directions of D
        if _TIMES_NOISE * spanned_of_noise > 1:  # so many candidates span anything
            return False
        missing = self.records - self.total
        too_few = missing > max(_MOST_OFF * self.records, error)
        if self.in_batches:
            too_few = missing - error > _MOST_MISSING * self.records
        return (too_few and spanned > _SPANNED) or spanned < _TIMES_NOISE * spanned_of_noise

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
            [Efron04b].
        """
        # Without the mean score of the record's class, which is its share times the shift.
        about_means = self.score - self.share * self.shift
        quartiles = torch.quantile(about_means, torch.tensor([0.25, 0.75]).to(self.score))
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
            [Efron08].
        """
        # Variances 1 + (t shift)^2 for all t: (T, M).
        variance = 1 + (_PARTS[:, None] * self.shift) ** 2
        largest_posterior = -math.inf
        best_fit = self
        for part, in_pool in itertools.product(_PARTS.tolist(), _IN_POOL):
            share = (in_pool * self.share).clamp(1e-6, 1 - 1e-6)
            # Log densities of a member and of another record, with the probability of being one.
            squared_distance = (self.score - part * self.shift).square()
            member = share.log() - variance.log() / 2 - squared_distance / (2 * variance)
            non_member = (1 - share).log() - self.score.square() / 2
            # Prior: a about 1 and t about 0.
            surprise = ((1 - part) ** 2 + _PARTS.square()) / (2 * _PART_SPREAD**2)
            log_posterior = torch.logaddexp(non_member, member).sum(1) - surprise
            best_spread = int(log_posterior.argmax())
            if float(log_posterior[best_spread]) > largest_posterior:
                largest_posterior = float(log_posterior[best_spread])
                probability = torch.sigmoid(member[best_spread] - non_member)
                best_fit = dataclasses.replace(self, shift=part * self.shift, member=probability)
        return best_fit

    @property
    def evidence(self) -> Tensor:
        """``(M,)`` log likelihood ratio of a record in the update against one that is not."""
        return self.shift * (self.score - self.shift / 2)


def summed_over_rounds(fits: Sequence[Fit]) -> Fit:
    """One fit of several rounds' fits of a client: the sum of the scores, weighted by their shifts.

    Its variance has a component that the rounds share (`_shared_noise`), so that it says less than as many independent
    rounds.
    """
    shifts = torch.stack([round_fit.shift for round_fit in fits])
    scores = torch.stack([round_fit.score for round_fit in fits])
    shares = torch.stack([round_fit.share for round_fit in fits])
    # With a correlation c between rounds, the variance of sum_r s_r x_r is (1 - c) sum_r s_r^2 + c (sum_r s_r)^2.
    correlation = _shared_noise(scores - shares * shifts)
    squares = shifts.square().sum(0)
    spread = ((1 - correlation) * squares + correlation * shifts.sum(0).square()).sqrt()
    spread = spread.where(spread > 0, 1)
    return dataclasses.replace(
        fits[-1],
        score=(shifts * scores).sum(0) / spread,
        shift=squares / spread,
        share=shares.mean(0),
        mean=torch.stack([round_fit.mean for round_fit in fits]).mean(0),
        seen_part=sum(round_fit.seen_part for round_fit in fits) / len(fits),
        total=sum(round_fit.total for round_fit in fits) / len(fits),
        total_error=sum(round_fit.total_error for round_fit in fits) / len(fits),
    )


def _shared_noise(scores: Tensor) -> float:
    """Mean correlation of a client's scores ``(R, M)`` between rounds, about their means, from 0 to 1.

    Records of the client that are no candidates are a fixed sum, nearly the same in each round, and most candidates are
    no members: what the scores of two rounds have in common is mostly noise that the rounds share.
    """
    count = len(scores)
    if count < 2:
        return 0.0
    products = scores @ scores.T
    variance = float(products.diagonal().sum()) / count
    covariance = float(products.sum() - products.diagonal().sum()) / (count * (count - 1))
    if not variance > 0:
        return 1.0
    return min(max(covariance / variance, 0.0), 1.0)


def predicted_auc(update_fit: Fit) -> float:
    """AUC of the log odds that a fit expects, if its model holds: a mean over pairs of a member and another record.

    NaN for a fit that refutes its model (`Fit.refuted`).

    The evidence is N(p s^2 - s^2/2, s^2) for a member and N(-s^2/2, s^2) for another record, ``s`` being its shift and
    ``p`` the part of it that rounding leaves (`Fit.seen_part`). With equal shifts and classes the AUC is
    ``Phi(p s / sqrt 2)``; ``s`` is the norm of the record's effect without what the other candidates explain, in units
    of the noise. Of many candidates, `_PAIRS` are compared.

    Of a fit that knows the law of its members' scores (`Fit.of_members`), pairs have the weights of their probabilities
    of being a member and none, and what counts is which of their log odds are larger.
    """
    if update_fit.refuted:
        return math.nan
    step = -(-len(update_fit.shift) // _PAIRS)
    if update_fit.member is None:
        membership = update_fit.share.double()[::step]
        half_square = update_fit.shift.double()[::step].square() / 2  # s^2 / 2
        prior = torch.logit(membership, eps=1e-9)
        # Means of the log odds, p s^2 - s^2 / 2 of a member and -s^2 / 2 of another record, with their priors.
        mean_of_member = (2 * update_fit.seen_part - 1) * half_square + prior
        gap = mean_of_member[:, None] - (prior - half_square)
        # The difference of the two has the variance s_1^2 + s_2^2.
        variance = 2 * (half_square[:, None] + half_square)
        ordered = torch.special.ndtr(gap / variance.sqrt().clamp(min=1e-12))
    else:
        membership = update_fit.member.double()[::step]
        log_odds = update_fit.log_odds.double()[::step]
        ordered = ((log_odds[:, None] - log_odds).sign() + 1) / 2
    # A pair of members and others counts by the probability that it is one.
    pairs = (membership[:, None] * (1 - membership)).fill_diagonal_(0.0)
    return float((pairs * ordered).sum() / pairs.sum().clamp(min=1e-300))
