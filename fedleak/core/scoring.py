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
        Hanley and McNeil, "The meaning and use of the area under a receiver operating characteristic (ROC) curve",
        Radiology, 1982.
    """
    values = scores.double().masked_fill(~mask, torch.inf)
    ordered = values.sort(dim=1).values.contiguous()
    below = torch.searchsorted(ordered, values, side="left")
    not_above = torch.searchsorted(ordered, values, side="right")
    ranks = (below + not_above + 1) / 2
    positive = (labels > 0.5) & mask
    positives = positive.sum(1).double()
    negatives = mask.sum(1) - positives
    wins = (ranks * positive).sum(1) - positives * (positives + 1) / 2
    return wins / (positives * negatives).masked_fill(positives * negatives == 0, torch.nan)


def f1_per_victim(decisions: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """``(V,)`` F1 of decisions ``(V, R)``, NaN for a victim without a positive; arguments as in `auc_per_victim`."""
    positive, decided = (labels > 0.5) & mask, decisions & mask
    hits = (positive & decided).sum(1).double()
    size = positive.sum(1) + decided.sum(1)
    return (2 * hits / size.clamp(min=1)).masked_fill(positive.sum(1) == 0, torch.nan)


def best_decisions(posterior: Tensor) -> tuple[Tensor, Tensor]:
    """Decisions ``(V, W)`` of largest expected F1, to first order, and that F1 ``(V,)``, of a posterior ``(V, W)``."""
    ordered, order = posterior.double().sort(dim=1, descending=True)
    total = posterior.double().sum(1, keepdim=True)
    scores = 2 * ordered.cumsum(1) / (torch.arange(1, ordered.shape[1] + 1) + total).clamp(min=1e-12)
    best, place = scores.max(1, keepdim=True)
    taken = torch.arange(ordered.shape[1]) <= place
    return torch.zeros_like(taken).scatter(1, order, taken), best.squeeze(1)


def roc_per_victim(scores: Tensor, labels: Tensor, mask: Tensor, grid: Tensor) -> Tensor:
    """``(V, G)`` true-positive rates at false-positive rates ``grid (G,)``; other arguments as in `auc_per_victim`.

    At a rate between tied scores the curve is linear, so that its area is that of `auc_per_victim` for hard labels and
    counts too. At rate 1 every item is accepted.
    """
    positive, negative = (labels > 0.5) & mask, (labels <= 0.5) & mask
    values = scores.double()
    ordered = values.masked_fill(~negative, -torch.inf).sort(dim=1, descending=True).values
    allowed = grid.double() * negative.sum(1, keepdim=True)
    thresholds = ordered.gather(1, (allowed.ceil().long() - 1).clamp(min=0, max=values.shape[1] - 1))
    (wins, ties), (passed, tied) = (_above_and_at(values, kind, thresholds) for kind in (positive, negative))
    positives = positive.sum(1, keepdim=True).clamp(min=1)
    part = ((allowed - passed) / tied.clamp(min=1)).clamp(0, 1)
    return torch.where(grid >= 1, 1.0, wins / positives + ties / positives * part)


def _above_and_at(values: Tensor, kind: Tensor, thresholds: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers ``(V, G)`` of the values ``(V, W)`` of a kind above thresholds ``(V, G)``, and of those at them."""
    ascending, count = values.masked_fill(~kind, torch.inf).sort(dim=1).values, kind.sum(1, keepdim=True)
    below, not_above = (torch.searchsorted(ascending, thresholds, right=r).minimum(count) for r in (False, True))
    return count - not_above, not_above - below


@dataclass(frozen=True)
class Rates:
    """Shares of positives and of negatives accepted, whose score reaches a threshold; infinity accepts nothing."""

    tpr: float
    fpr: float
    threshold: float


def exact_roc(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """False-positive rates, true-positive rates and thresholds ``(P,)`` of the whole ROC curve.

    It goes from (0, 0), where nothing is accepted, to (1, 1), with a point for each distinct score. Higher ``scores
    (N,)`` mean more likely positive; some ``labels (N,)`` are True and some False.
    """
    values, positive = scores.double().numpy(), labels.numpy().astype(bool)
    thresholds, rank = np.unique(-values, return_inverse=True)
    rates = [np.bincount(rank[kind], minlength=len(thresholds)).cumsum() / kind.sum() for kind in (~positive, positive)]
    curve = (np.concatenate([[start], rest]) for start, rest in zip((0, 0, np.inf), (*rates, -thresholds), strict=True))
    fpr, tpr, at = (torch.from_numpy(part) for part in curve)
    return fpr, tpr, at


def rates_at(scores: Tensor, labels: Tensor, allowed: float) -> Rates:
    """Highest true-positive rate with a false-positive rate of at most `allowed`; arguments as in `exact_roc`."""
    fpr, tpr, thresholds = exact_roc(scores, labels)
    last = int((fpr <= allowed).nonzero()[-1])
    place = int((tpr == tpr[last]).nonzero()[0])
    return Rates(float(tpr[place]), float(fpr[place]), float(thresholds[place]))


def clopper_pearson(successes: int, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """Exact interval of a proportion of `n` independent trials, with coverage `level`: 0.982 to 1 for 200 of 200.

    References:
        C. J. Clopper and E. S. Pearson, "The use of confidence or fiducial limits illustrated in the case of the
        binomial", Biometrika, 1934.
    """
    found = binomtest(successes, n).proportion_ci(confidence_level=level, method="exact")
    return float(found.low), float(found.high)


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
    return {"l1": gap.sum(1), "l2": gap.square().sum(1).sqrt(), "linf": gap.amax(1)}


def exact_counts(inferred: Tensor, counts: Tensor) -> dict[str, Tensor]:
    """``exact (V,)``: 1 where proportions ``(V, K)``, rounded to whole examples, give all ``counts (V, K)``, else 0."""
    return {"exact": ((inferred * counts.sum(1, keepdim=True)).round() == counts).all(1).double()}


def null_class_errors(present: Tensor, held: Tensor) -> dict[str, Tensor]:
    """``null_false_positive`` and ``null_false_negative`` ``(V,)``, error rates on null classes.

    The former is the share of the classes not ``held (V, K)`` that are called ``present (V, K)``, NaN if all are held;
    the latter is the share of the classes held that are called null.
    """
    raised, missed = (present & ~held).sum(1).double(), (~present & held).sum(1).double()
    lacking, holding = (~held).sum(1).double(), held.sum(1).double()
    return {
        "null_false_positive": raised / lacking.masked_fill(lacking == 0, torch.nan),
        "null_false_negative": missed / holding.masked_fill(holding == 0, torch.nan),
    }


def precision_at_positives(scores: Tensor, positive: Tensor) -> Tensor:
    """``(P,)`` precision at the score of each positive, for ``scores (M,)`` and ``positive (M,)`` bool.

    The mean is the average precision.
    """
    values = scores.double()
    hits = values[positive]
    better = len(values) - torch.searchsorted(values.sort().values, hits)
    return (len(hits) - torch.searchsorted(hits.sort().values, hits)).double() / better


def average_precision(scores: Tensor, positive: Tensor) -> Tensor:
    """``(U,)`` area under the precision-recall curve of each column, as a sum of steps like in scikit-learn.

    Of ``scores (V, U)`` and ``positive (V, U)`` bool; a column without a positive gives NaN.
    """
    means = [precision_at_positives(*column).mean() for column in zip(scores.T, positive.T, strict=True)]
    return torch.stack(means) if means else scores.new_zeros(0, dtype=torch.float64)


def r_precision(scores: Tensor, positive: Tensor, mask: Tensor) -> Tensor:
    """``(V,)`` share of positives among as many items of highest score, expected over the orders of ties; else NaN.

    Of ``scores (V, R)``, ``positive (V, R)`` bool and ``mask (V, R)``, True for real items.

    References:
        Manning, Raghavan and Schuetze, "Introduction to Information Retrieval", 2008, section 8.4.
    """
    values, held = scores.double().masked_fill(~mask, -torch.inf), positive.sum(1, keepdim=True)
    last = values.sort(dim=1, descending=True).values.gather(1, (held - 1).clamp(min=0))
    above, tied = values > last, values == last
    part = (held - above.sum(1, keepdim=True)) / tied.sum(1, keepdim=True)
    hits = ((above + tied * part) * positive).sum(1, keepdim=True)
    return (hits / held).masked_fill(held == 0, torch.nan).squeeze(1)


def random_average_precision(positives: Tensor, total: int) -> Tensor:
    """Expected average precision of a random order of `total` items with ``positives (U,)``."""
    harmonic = (1 / torch.arange(1, total + 1, dtype=torch.float64)).sum()
    count = positives.double()
    return ((count - 1) + (total - count) * harmonic / total) / max(total - 1, 1)


def top_share(scores: Tensor, true: Tensor, places: int) -> Tensor:
    """``(V,)`` whether the true column is among the `places` highest of ``scores (V, U)``, or its chance in a tie."""
    own = scores.gather(1, true[:, None])
    above, tied = (scores > own).sum(1), (scores == own).sum(1)
    return ((places - above).double() / tied).clamp(0, 1)
