"""Metrics as functions on tensors: AUC, F1, ROC, average precision, distances of proportions."""

import torch
from torch import Tensor


def auc_per_victim(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Area under the ROC curve of each victim; ties count half (Hanley and McNeil 1982).

    Args:
        scores: ``(V, R)``, higher means more likely positive.
        labels: ``(V, R)``, positive above 0.5.
        mask: ``(V, R)`` True for real items.

    Returns:
        ``(V,)`` float64, NaN for a victim with one class only.
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
    """F1 of each victim's decided items.

    Args:
        decisions: ``(V, R)`` bool.
        labels: ``(V, R)``, positive above 0.5.
        mask: ``(V, R)`` True for real items.

    Returns:
        ``(V,)`` float64, NaN for a victim without a positive.
    """
    positive, decided = (labels > 0.5) & mask, decisions & mask
    hits = (positive & decided).sum(1).double()
    size = positive.sum(1) + decided.sum(1)
    return (2 * hits / size.clamp(min=1)).masked_fill(positive.sum(1) == 0, torch.nan)


def roc_per_victim(scores: Tensor, labels: Tensor, mask: Tensor, grid: Tensor) -> Tensor:
    """True-positive rate of each victim at given false-positive rates.

    Args:
        scores: ``(V, R)``.
        labels: ``(V, R)``, positive above 0.5.
        mask: ``(V, R)`` True for real items.
        grid: ``(G,)`` false-positive rates.

    Returns:
        ``(V, G)``; where a rate falls among tied scores, the curve is the straight line over the tie, so that hard
        labels and counts get the area that `auc_per_victim` gives them. At rate 1 every item is accepted, those below
        the lowest negative too.
    """
    positive, negative = (labels > 0.5) & mask, (labels <= 0.5) & mask
    values = scores.double()
    ordered = values.masked_fill(~negative, -torch.inf).sort(dim=1, descending=True).values
    allowed = grid.double() * negative.sum(1, keepdim=True)
    index = (allowed.ceil().long() - 1).clamp(min=0, max=values.shape[1] - 1)
    thresholds = ordered.gather(1, index)
    wins = _share_above(values, positive, thresholds)
    ties = _share_at(values, positive, thresholds)
    passed = _share_above(values, negative, thresholds) * negative.sum(1, keepdim=True)
    tied = _share_at(values, negative, thresholds) * negative.sum(1, keepdim=True)
    part = ((allowed - passed) / tied.clamp(min=1)).clamp(0, 1)
    return torch.where(grid >= 1, 1.0, wins + ties * part)


def _share_above(values: Tensor, chosen: Tensor, thresholds: Tensor) -> Tensor:
    above = (values[:, None] > thresholds[..., None]) & chosen[:, None]
    return above.sum(2) / chosen.sum(1, keepdim=True).clamp(min=1)


def _share_at(values: Tensor, chosen: Tensor, thresholds: Tensor) -> Tensor:
    at = (values[:, None] == thresholds[..., None]) & chosen[:, None]
    return at.sum(2) / chosen.sum(1, keepdim=True).clamp(min=1)


def wins_over_negatives(scores: Tensor, labels: Tensor) -> Tensor:
    """Of each positive, the share of the negatives that it outranks, ties half: their mean is the AUC.

    Args:
        scores: ``(V,)``, higher means more likely positive.
        labels: ``(V,)`` bool.

    Returns:
        ``(P,)`` float64, one for each positive.
    """
    positive, negative = scores[labels].double(), scores[~labels].double()
    gaps = (positive[:, None] - negative).sign()
    return (gaps + 1).mean(1) / 2


def composition_errors(inferred: Tensor, true: Tensor) -> dict[str, Tensor]:
    """``l1``, ``l2`` and ``linf`` distance ``(V,)`` of proportions ``(V, K)`` (Decaf, equation 3)."""
    gap = (inferred - true).abs()
    return {"l1": gap.sum(1), "l2": gap.square().sum(1).sqrt(), "linf": gap.amax(1)}


def null_class_errors(present: Tensor, held: Tensor) -> dict[str, Tensor]:
    """Errors about the classes that a client does not have, apart by kind.

    Args:
        present: ``(V, K)`` bool, what is called present.
        held: ``(V, K)`` bool, what the client holds.

    Returns:
        ``null_false_positive`` ``(V,)``: share of the classes not held that are called present, NaN where all are held;
        ``null_false_negative``: share of the classes held that are called null.
    """
    raised, missed = (present & ~held).sum(1).double(), (~present & held).sum(1).double()
    lacking, holding = (~held).sum(1).double(), held.sum(1).double()
    return {
        "null_false_positive": raised / lacking.masked_fill(lacking == 0, torch.nan),
        "null_false_negative": missed / holding.masked_fill(holding == 0, torch.nan),
    }


def precision_at_positives(scores: Tensor, positive: Tensor) -> Tensor:
    """Of each positive, the precision among all that score as high; their mean is the average precision.

    Args:
        scores: ``(M,)``, higher means more likely positive.
        positive: ``(M,)`` bool.

    Returns:
        ``(P,)`` float64, one for each positive.
    """
    values = scores.double()
    hits = values[positive]
    better = len(values) - torch.searchsorted(values.sort().values, hits)
    found = len(hits) - torch.searchsorted(hits.sort().values, hits)
    return found.double() / better


def average_precision(scores: Tensor, positive: Tensor) -> Tensor:
    """Area under the precision-recall curve of each column, in steps, as scikit-learn has it.

    Args:
        scores: ``(V, U)``.
        positive: ``(V, U)`` bool.

    Returns:
        ``(U,)`` float64, NaN for a column without a positive.
    """
    columns = zip(scores.T, positive.T, strict=True)
    return torch.stack([precision_at_positives(values, true).mean() for values, true in columns])


def random_average_precision(positives: Tensor, total: int) -> Tensor:
    """Average precision that a random order has in the mean: above the share of positives where those are few.

    Args:
        positives: ``(U,)`` numbers of positives.
        total: of all.

    Returns:
        ``(U,)`` float64.
    """
    harmonic = (1 / torch.arange(1, total + 1, dtype=torch.float64)).sum()
    count = positives.double()
    return ((count - 1) + (total - count) * harmonic / total) / max(total - 1, 1)


def top_share(scores: Tensor, true: Tensor, places: int) -> Tensor:
    """Whether the true column is among the highest; where scores tie, the chance of it.

    Args:
        scores: ``(V, U)``.
        true: ``(V,)`` int64 columns.
        places: how many count as highest.

    Returns:
        ``(V,)`` float64 in [0, 1].
    """
    own = scores.gather(1, true[:, None])
    above, tied = (scores > own).sum(1), (scores == own).sum(1)
    return ((places - above).double() / tied).clamp(0, 1)
