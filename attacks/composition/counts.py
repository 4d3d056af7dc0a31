"""Whole class counts: their estimate, and the nearest whole numbers to a least-squares solution."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.composition.base import CompositionAttack, certain
from fedleak.attacks.composition.estimates import CompositionEstimate
from fedleak.core.estimates import Detail, Scores, check_tensor
from fedleak.core.largest_remainders import largest_remainders
from fedleak.core.metric import SHARE, Metric
from fedleak.core.view import View

_SHARP = 0.35
"""Predicted standard deviation below which counts before rounding show whether they are whole numbers."""
_SMALL = 0.1
"""Standard deviation below which hardly any normal error is larger than a half."""
_MOST_OFF = 1 / 18
"""Mean squared distance from whole numbers, that of a normal error of 0.25, above which nothing is predicted."""
_MOST_NEGATIVE = 4.0
"""Standard deviations by which a count may be negative."""


@dataclass(frozen=True, kw_only=True)
class CountEstimate(CompositionEstimate):
    """The number of a client's examples of each class.

    Attributes:
        counts: ``(V, K)`` int64, at least 0; they may sum to another number than the client's examples.
        deviation: ``(V, K)`` predicted standard deviation of the counts before rounding, which the counts did not
            refute, see `shown_deviation`; NaN for no prediction.
        assumes: what the attack assumes of the clients against what is known of them, for reports; empty for nothing.

    References:
        [Ma23], whose LnAcc, IRec and LeAcc are the first three metrics.
    """

    metrics = (
        *CompositionEstimate.metrics,
        Metric("exact-classes", "Exact classes is the share of classes whose count is right.", span=(0.0, 1.0)),
        Metric("instance-recall", "Instance recall is the share of examples whose label is inferred.", span=(0.0, 1.0)),
        Metric(
            "class-existence", "Class existence is the share of classes rightly called present or absent.", span=SHARE
        ),
        Metric(
            "predicted-exact-classes",
            "Predicted exact classes is the share of classes that the attack expects to count right under its"
            " assumptions, without the truth; absent where its counts before rounding refute these.",
            leak=False,
            predicts="exact-classes",
            span=SHARE,
        ),
    )
    counts: Tensor
    deviation: Tensor
    assumes: str = ""

    def check(self, view: View) -> None:
        super().check(view)
        check_tensor("counts", self.counts, tuple(self.proportions.shape), dtype=torch.int64)
        check_tensor("deviation", self.deviation, tuple(self.proportions.shape), dtype=torch.float64, finite=False)

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        scores = super().score(view, truth)
        true_counts = truth["class_counts"].long()
        # Instance recall: of the true examples of a class, those that the inferred count covers.
        covered = torch.minimum(self.counts, true_counts).sum(1)
        metrics = {
            **scores.metrics,
            "exact-classes": (self.counts == true_counts).double().mean(1),
            "instance-recall": covered / true_counts.sum(1).clamp(min=1).double(),
            "class-existence": ((self.counts > 0) == (true_counts > 0)).double().mean(1),
        }
        if bool(self.deviation.isfinite().any()):
            metrics["predicted-exact-classes"] = right_when_rounded(self.deviation).mean(1)
        details: list[Detail] = []
        if self.assumes:
            details.append({"clients": view.victims, "assumes": self.assumes})
        return dataclasses.replace(scores, metrics=metrics, details=details)


class CountAttack(CompositionAttack):
    """Base class of attacks that infer how many examples of each class a client has."""

    estimates = CountEstimate

    def combine(self, estimates: Sequence[CompositionEstimate]) -> CountEstimate:
        """Mean over the rounds of the same clients, rounded."""
        count_estimates = [estimate for estimate in estimates if isinstance(estimate, CountEstimate)]
        mean_counts = torch.stack([estimate.counts.double() for estimate in count_estimates]).mean(0)
        mean_deviation = torch.stack([estimate.deviation for estimate in count_estimates]).mean(0)
        return count_estimate(mean_counts.round().long(), mean_deviation)


def count_estimate(counts: Tensor, deviation: Tensor | None = None, *, shares: Tensor | None = None) -> CountEstimate:
    """The estimate of ``counts (V, K)``.

    Args:
        counts: whole numbers, at least 0.
        deviation: ``(V, K)`` predicted standard deviation of the counts, which also gives intervals of 95 %.
        shares: ``(V, K)`` the shares, if they are not those of the counts.
    """
    if shares is None:
        proportions = counts.double()
        # A client with no count at all gets equal shares.
        proportions = proportions.where(proportions.any(1, keepdim=True), 1.0)
    else:
        proportions = shares
    plain = certain(proportions, counts > 0)
    if deviation is None:
        return CountEstimate(**vars(plain), counts=counts, deviation=plain.low)
    total = counts.sum(1, keepdim=True).clamp(min=1)
    # 95 % of normal errors are within 1.96 standard deviations.
    half_width = 1.96 * deviation
    if shares is None:
        half_width = half_width.round()  # of whole numbers: an error of less than a half is none
    half_width = half_width / total
    low = (plain.proportions - half_width).clamp(min=0)
    high = (plain.proportions + half_width).clamp(max=1)
    return CountEstimate(
        proportions=plain.proportions,
        low=low,
        high=high,
        present=plain.present,
        counts=counts,
        deviation=deviation.double(),
    )


def right_when_rounded(deviation: Tensor) -> Tensor:
    """Probability that a normal error of some standard deviation is less than a half."""
    return torch.erf(0.5 / (deviation.clamp(min=1e-12) * 2**0.5))


def off_whole(counts: Tensor, deviation: Tensor) -> Tensor:
    """``(V,)`` mean squared distance of ``counts (V, K)`` from the nearest whole numbers.

    Only counts with a predicted standard ``deviation (V, K)`` below `_SHARP` are asked: larger errors would hide whole
    numbers. NaN for a client without such counts. It is 1/12 for numbers that have nothing to do with whole ones.
    """
    return _mean_where(deviation < _SHARP, (counts - counts.round()).square())


def shown_deviation(counts: Tensor, deviation: Tensor) -> Tensor:
    """``(V, K)`` standard deviation of inferred counts: the predicted one, or what the counts show if that is larger.

    A prediction holds for clients that run what the server assumes. If they do, ``counts (V, K)`` before rounding, of
    whole sums, lie about whole numbers, as far from them as the predicted ``deviation (V, K)``. Where
    they lie farther away, all errors are taken to be larger by the same variance. It is NaN, for no prediction, where
    the counts refute it:

    * counts are about as far from whole numbers as any numbers are, in the mean over all clients or for this one;
    * more clients' counts round to another sum than a prediction allows;
    * a count is negative by more than half an example and `_MOST_NEGATIVE` predicted standard deviations.
    """
    deviation = deviation.double()
    is_sharp = deviation < _SHARP
    # Mean squared distances from whole numbers of each client: those of the counts, and those of the prediction.
    off = off_whole(counts, deviation)
    expected_off = _mean_where(is_sharp, _off_at(deviation))
    # The same over all clients, each weighted by its number of sharp counts.
    weight = is_sharp.sum(1)
    sharp_counts = weight.sum().clamp(min=1)
    off_of_all = float((off.nan_to_num() * weight).sum() / sharp_counts)
    expected_of_all = float((expected_off.nan_to_num() * weight).sum() / sharp_counts)
    # The squared distance of an error that is uniform in a cell has mean 1/12 and standard deviation 1 / sqrt(180).
    error = float((180 * sharp_counts) ** -0.5)
    shown = deviation
    if off_of_all > expected_of_all + 2 * error:
        # Farther from whole numbers than predicted: the same variance is added to all errors of a client.
        shown_variance = _deviation_at(off.clamp(min=off_of_all)) ** 2
        added_variance = (shown_variance - _deviation_at(expected_off) ** 2).clamp(min=0)
        shown = (deviation.square() + added_variance.nan_to_num()[:, None]).sqrt()
        # First refutation, of one client and of all: about as far as any numbers are.
        shown = shown.masked_fill(off[:, None] > _MOST_OFF, torch.nan)
        if off_of_all > min(_MOST_OFF, 1 / 12 - 2 * error):
            shown = torch.full_like(shown, torch.nan)
    # Second refutation: more clients whose rounded counts have another sum than expected, three deviations, and one.
    has_other_sum = counts.round().clamp(min=0).sum(1) != counts.sum(1).round()
    other_sum_probability = 1 - right_when_rounded(shown.nan_to_num()).prod(1)
    variance = other_sum_probability * (1 - other_sum_probability)
    most_other_sums = float(other_sum_probability.sum() + 3 * variance.sum().sqrt()) + 1
    # Third refutation: counts that are too negative.
    is_too_negative = counts < -0.5 - _MOST_NEGATIVE * deviation
    shown = shown.masked_fill(is_too_negative.any(1, keepdim=True), torch.nan)
    if float(has_other_sum.sum()) > most_other_sums:
        return torch.full_like(shown, torch.nan)
    return shown


def _mean_where(mask: Tensor, values: Tensor) -> Tensor:
    """``(V,)`` means of ``values (V, K)`` in a mask, NaN for none."""
    number = mask.sum(1).double()
    return values.where(mask, 0.0).sum(1) / number.where(number > 0, torch.nan)


def _off_at(deviation: Tensor) -> Tensor:
    """Mean squared distance from whole numbers of a normal error with a standard deviation s.

    It is ``1/12 + sum_k (-1)^k exp(-2 (pi k s)^2) / (pi k)^2``, the Fourier series of the squared distance; for a small
    s, which it needs many terms for, it is s^2.
    """
    k = torch.arange(1, 30, dtype=torch.float64)
    s = deviation[..., None].clamp(max=10)
    waves = (-1) ** k / (torch.pi * k) ** 2 * torch.exp(-2 * (torch.pi * k * s) ** 2)
    return torch.where(deviation < _SMALL, deviation.square(), 1 / 12 + waves.sum(-1))


def _deviation_at(off: Tensor) -> Tensor:
    """The inverse of `_off_at`, at most 1."""
    # `_off_at` grows with the deviation, so its values on a grid are sorted.
    grid = torch.linspace(0, 1, 1001, dtype=torch.float64)
    position = torch.searchsorted(_off_at(grid), off.nan_to_num().contiguous())
    return grid[position.clamp(max=len(grid) - 1)]


def nearest_counts(precision: Tensor, target: Tensor, start: Tensor, sizes: Tensor) -> Tensor:
    """``(V, K)`` whole numbers n >= 0 with sums ``sizes (V,)`` that make ``n' A n - 2 n' b`` small.

    A is the symmetric ``precision (V, K, K)``, b the ``target (V, K)``. From the largest remainders of a real ``start
    (V, K)``, whose negative entries are taken for 0, best first: the example that most lowers the sum when it moves
    from one class to another does so, until none does.
    """
    shares = start.clamp(min=0)
    shares = shares.where(shares.any(1, keepdim=True), 1.0)
    counts = largest_remainders(shares / shares.sum(1, keepdim=True), sizes).double()
    victims, classes = counts.shape
    clients = torch.arange(victims)
    diagonal = precision.diagonal(dim1=1, dim2=2)
    # An example that moves from class j to class i changes n' A n - 2 n' b by
    # A_ii + A_jj - 2 A_ij + s_i - s_j, with the slope s = 2 (A n - b); the first three terms do not depend on n.
    pair = diagonal[:, :, None] + diagonal[:, None, :] - 2 * precision
    pair = pair.masked_fill(torch.eye(classes, dtype=torch.bool), torch.inf)
    for _ in range(int(sizes.max()) + 1):
        slope = 2 * ((precision @ counts[..., None]).squeeze(2) - target)
        change = pair + slope[:, :, None] - slope[:, None, :]
        # A class without examples can give none.
        change = change.masked_fill((counts < 1)[:, None, :], torch.inf)
        best, pair_number = change.flatten(1).min(1)
        moves = best < -1e-9 * diagonal.amax(1)  # by more than rounding
        if not bool(moves.any()):
            break
        counts[clients[moves], pair_number[moves] // classes] += 1
        counts[clients[moves], pair_number[moves] % classes] -= 1
    return counts.long()
