"""Metrics as functions on tensors: AUC, F1, ROC, average precision, distances of proportions."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import binomtest
from torch import Tensor


def auc_per_victim(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """``(V,)`` area under the ROC curve, ties counting half; NaN for a victim with one class only.

    Args:
        scores: ``(V, R)``, higher means more likely positive.
        labels: ``(V, R)``, positive above 0.5.
        mask: ``(V, R)`` True for real items.

    References:
        [Hanley82].
    """
    # The masked-out are sorted above all others, where they change no rank.
    values = scores.double().masked_fill(~mask, torch.inf)
    ascending = values.sort(dim=1).values.contiguous()
    below = torch.searchsorted(ascending, values, side="left")
    not_above = torch.searchsorted(ascending, values, side="right")
    # Ranks from 1; those of a tie are their mean.
    ranks = (below + not_above + 1) / 2
    positive = (labels > 0.5) & mask
    positives = positive.sum(1).double()
    negatives = mask.sum(1) - positives
    # Mann-Whitney: U = sum of the ranks of the P positives - P (P + 1) / 2, and AUC = U / (P N).
    wins = (ranks * positive).sum(1) - positives * (positives + 1) / 2
    pairs = positives * negatives
    return wins / pairs.masked_fill(pairs == 0, torch.nan)


def f1_per_victim(decisions: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """``(V,)`` F1 of decisions ``(V, R)``, NaN for a victim without a positive; arguments as in `auc_per_victim`."""
    positive = (labels > 0.5) & mask
    decided = decisions & mask
    hits = (positive & decided).sum(1).double()
    # F1 = 2 TP / (P + decided), the harmonic mean of precision and recall.
    size = positive.sum(1) + decided.sum(1)
    return (2 * hits / size.clamp(min=1)).masked_fill(positive.sum(1) == 0, torch.nan)


def best_decisions(posterior: Tensor) -> tuple[Tensor, Tensor]:
    """Decisions ``(V, W)`` of largest expected F1, to first order, and that F1 ``(V,)``, of a posterior ``(V, W)``."""
    # Of k decisions, the k most probable are best. To first order, E[F1] = 2 E[TP] / (k + E[P]).
    descending, order = posterior.double().sort(dim=1, descending=True)
    expected_positives = posterior.double().sum(1, keepdim=True)
    k = torch.arange(1, descending.shape[1] + 1)
    expected_f1 = 2 * descending.cumsum(1) / (k + expected_positives).clamp(min=1e-12)
    best_f1, best_index = expected_f1.max(1, keepdim=True)
    # Back from the order of probability to that of the columns.
    is_decided = torch.arange(descending.shape[1]) <= best_index
    return torch.zeros_like(is_decided).scatter(1, order, is_decided), best_f1.squeeze(1)


def roc_per_victim(scores: Tensor, labels: Tensor, mask: Tensor, grid: Tensor) -> Tensor:
    """``(V, G)`` true-positive rates at false-positive rates ``grid (G,)``; other arguments as in `auc_per_victim`.

    At a rate between tied scores the curve is linear, so that its area is that of `auc_per_victim` for hard labels and
    counts too. At rate 1 every item is accepted.
    """
    positive = (labels > 0.5) & mask
    negative = (labels <= 0.5) & mask
    values = scores.double()
    # The threshold of a rate f is the score of the negative whose acceptance reaches f N negatives.
    descending = values.masked_fill(~negative, -torch.inf).sort(dim=1, descending=True).values
    allowed = grid.double() * negative.sum(1, keepdim=True)
    last_allowed = (allowed.ceil().long() - 1).clamp(min=0, max=values.shape[1] - 1)
    thresholds = descending.gather(1, last_allowed)
    positives_above, positives_tied = _above_and_at(values, positive, thresholds)
    negatives_above, negatives_tied = _above_and_at(values, negative, thresholds)
    # Of those at the threshold, the part is accepted at random with which exactly f N negatives are.
    part = ((allowed - negatives_above) / negatives_tied.clamp(min=1)).clamp(0, 1)
    positives = positive.sum(1, keepdim=True).clamp(min=1)
    rates = positives_above / positives + positives_tied / positives * part
    return torch.where(grid >= 1, 1.0, rates)


def _above_and_at(values: Tensor, kind: Tensor, thresholds: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers ``(V, G)`` of the values ``(V, W)`` of a kind above thresholds ``(V, G)``, and of those at them."""
    # Values of other kinds are sorted to the end, where only the first `count` positions count.
    ascending = values.masked_fill(~kind, torch.inf).sort(dim=1).values
    count = kind.sum(1, keepdim=True)
    below = torch.searchsorted(ascending, thresholds, right=False).minimum(count)
    not_above = torch.searchsorted(ascending, thresholds, right=True).minimum(count)
    return count - not_above, not_above - below


@dataclass(frozen=True)
class AcceptanceRates:
    """Shares of positives and of negatives accepted, whose score reaches a threshold; infinity accepts nothing."""

    tpr: float
    fpr: float
    threshold: float


def exact_roc(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """False-positive rates, true-positive rates and thresholds ``(P,)`` of the whole ROC curve.

    It goes from (0, 0), where nothing is accepted, to (1, 1), with a point for each distinct score. Higher ``scores
    (N,)`` mean more likely positive; some ``labels (N,)`` are True and some False.
    """
    values = scores.double().numpy()
    positive = labels.numpy().astype(bool)
    # Each distinct score is a threshold, in descending order; a tie is accepted as a whole.
    negated_thresholds, rank = np.unique(-values, return_inverse=True)
    count = len(negated_thresholds)
    accepted_negatives = np.bincount(rank[~positive], minlength=count).cumsum()
    accepted_positives = np.bincount(rank[positive], minlength=count).cumsum()
    # The curve starts where nothing is accepted, at a threshold of infinity.
    fpr = np.concatenate([[0], accepted_negatives / (~positive).sum()])
    tpr = np.concatenate([[0], accepted_positives / positive.sum()])
    thresholds = np.concatenate([[np.inf], -negated_thresholds])
    return torch.from_numpy(fpr), torch.from_numpy(tpr), torch.from_numpy(thresholds)


def rates_at(scores: Tensor, labels: Tensor, allowed: float) -> AcceptanceRates:
    """Highest true-positive rate with a false-positive rate of at most `allowed`; arguments as in `exact_roc`."""
    fpr, tpr, thresholds = exact_roc(scores, labels)
    last = int((fpr <= allowed).nonzero()[-1])
    # Of the thresholds with this true-positive rate, the highest accepts the fewest negatives.
    best = int((tpr == tpr[last]).nonzero()[0])
    return AcceptanceRates(float(tpr[best]), float(fpr[best]), float(thresholds[best]))


def clopper_pearson(successes: int, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """Exact interval of a proportion of `n` independent trials, with coverage `level`: 0.982 to 1 for 200 of 200.

    References:
        [Clopper34].
    """
    interval = binomtest(successes, n).proportion_ci(confidence_level=level, method="exact")
    return float(interval.low), float(interval.high)


def wins_over_negatives(scores: Tensor, labels: Tensor) -> Tensor:
    """``(P,)`` share of the negatives ranked below each positive, ties counting half; the mean is the AUC.

    Higher ``scores (V,)`` mean more likely positive; ``labels (V,)`` are bool.
    """
    positive, negative = scores[labels].double(), scores[~labels].double()
    gaps = (positive[:, None] - negative).sign()
    return (gaps + 1).mean(1) / 2


def composition_errors(inferred: Tensor, true: Tensor) -> dict[str, Tensor]:
    """``l1``, ``l2`` and ``linf`` distance ``(V,)`` of proportions ``(V, K)`` (Decaf, equation 3)."""
    gap = (inferred - true).abs()
    return {
        "l1": gap.sum(1),
        "l2": gap.square().sum(1).sqrt(),
        "linf": gap.amax(1),
    }


def exact_counts(inferred: Tensor, counts: Tensor) -> dict[str, Tensor]:
    """``exact (V,)``: 1 where proportions ``(V, K)``, rounded to whole examples, give all ``counts (V, K)``, else 0."""
    inferred_counts = (inferred * counts.sum(1, keepdim=True)).round()
    return {"exact": (inferred_counts == counts).all(1).double()}


def null_class_errors(present: Tensor, truly_present: Tensor) -> dict[str, Tensor]:
    """``null_false_positive`` and ``null_false_negative`` ``(V,)``, error rates on null classes.

    The former is the share of the classes not ``held (V, K)`` that are called ``present (V, K)``, NaN if all are held;
    the latter is the share of the classes held that are called null.
    """
    false_positives = (present & ~truly_present).sum(1).double()
    false_negatives = (~present & truly_present).sum(1).double()
    absent_classes = (~truly_present).sum(1).double()
    present_classes = truly_present.sum(1).double()
    # No rate without a class to be wrong about.
    return {
        "null_false_positive": false_positives / absent_classes.masked_fill(absent_classes == 0, torch.nan),
        "null_false_negative": false_negatives / present_classes.masked_fill(present_classes == 0, torch.nan),
    }


def precision_at_positives(scores: Tensor, positive: Tensor) -> Tensor:
    """``(P,)`` precision at the score of each positive, for ``scores (M,)`` and ``positive (M,)`` bool.

    The mean is the average precision.
    """
    values = scores.double()
    positive_values = values[positive]
    # Numbers of all, and of positives, whose score is at least that of each positive.
    accepted = len(values) - torch.searchsorted(values.sort().values, positive_values)
    true_positives = len(positive_values) - torch.searchsorted(positive_values.sort().values, positive_values)
    return true_positives.double() / accepted


def average_precision(scores: Tensor, positive: Tensor) -> Tensor:
    """``(U,)`` area under the precision-recall curve of each column, as a sum of steps like in scikit-learn.

    Of ``scores (V, U)`` and ``positive (V, U)`` bool; a column without a positive gives NaN.
    """
    means = []
    for column_scores, column_positive in zip(scores.T, positive.T, strict=True):
        means.append(precision_at_positives(column_scores, column_positive).mean())
    if not means:
        return scores.new_zeros(0, dtype=torch.float64)
    return torch.stack(means)


def r_precision(scores: Tensor, positive: Tensor, mask: Tensor) -> Tensor:
    """``(V,)`` share of positives among as many items of highest score, expected over the orders of ties; else NaN.

    Of ``scores (V, R)``, ``positive (V, R)`` bool and ``mask (V, R)``, True for real items.

    References:
        [Manning08], section 8.4.
    """
    values = scores.double().masked_fill(~mask, -torch.inf)
    positives = positive.sum(1, keepdim=True)
    # R positives: the score of the R-th highest, what is above it, and what ties with it.
    descending = values.sort(dim=1, descending=True).values
    last = descending.gather(1, (positives - 1).clamp(min=0))
    above = values > last
    tied = values == last
    # Of the tied, those that fit among the first R are drawn at random: each with the same chance.
    chance = (positives - above.sum(1, keepdim=True)) / tied.sum(1, keepdim=True)
    hits = ((above + tied * chance) * positive).sum(1, keepdim=True)
    return (hits / positives).masked_fill(positives == 0, torch.nan).squeeze(1)


def random_average_precision(positives: Tensor, total: int) -> Tensor:
    """Expected average precision of a random order of `total` items with ``positives (U,)``."""
    # A positive at rank r finds (P - 1) (r - 1) / (T - 1) others above it; the mean of (1 + that) / r over the ranks.
    harmonic = (1 / torch.arange(1, total + 1, dtype=torch.float64)).sum()
    count = positives.double()
    return ((count - 1) + (total - count) * harmonic / total) / max(total - 1, 1)


def top_share(scores: Tensor, true: Tensor, k: int) -> Tensor:
    """``(V,)`` whether the true column is among the `k` highest of ``scores (V, U)``, or its chance in a tie."""
    true_scores = scores.gather(1, true[:, None])
    above = (scores > true_scores).sum(1)
    tied = (scores == true_scores).sum(1)
    # A tie is broken at random: the k - above places that are left are shared by all that tie.
    return ((k - above).double() / tied).clamp(0, 1)
