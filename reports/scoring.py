"""From an estimate and the truth to numbers: one scorer for each kind of estimate."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attacks.base import Estimate, InteractionEstimate, ServerView
from attacks.metrics import auc_per_victim, f1_per_victim, roc_per_victim

ROC_GRID = torch.linspace(0, 1, 101)


@dataclass(frozen=True)
class Scores:
    """What an estimate is worth.

    Attributes:
        metrics: by metric, ``(V,)``; NaN where it is not defined for a victim.
        items: ``(V,)`` how much was to be told of each victim, e.g. the number of its items.
        positives: ``(V,)`` how many of them were true.
        roc: ``(K, G)`` true-positive rates at `ROC_GRID` of the victims that have one, None where that means nothing.
    """

    metrics: dict[str, Tensor]
    items: Tensor
    positives: Tensor
    roc: Tensor | None = None


Scorer = Callable[[Any, ServerView, Mapping[str, Tensor]], Scores]


def score(estimate: Estimate, view: ServerView, truth: Mapping[str, Tensor]) -> Scores:
    """Scores an estimate.

    Args:
        estimate: what an attack said of the victims of `view`.
        view: what it was given.
        truth: of the same victims, see `datamodules.deltas.Recording.truth`.
    """
    return _SCORERS[type(estimate)](estimate, view, truth)


def score_interactions(estimate: InteractionEstimate, view: ServerView, truth: Mapping[str, Tensor]) -> Scores:
    """AUC of the scores and F1 of the decisions over each victim's served items."""
    mask = view.served_mask
    labels = truth["labels"][:, : mask.shape[1]]
    auc = auc_per_victim(estimate.scores, labels, mask)
    metrics = {"auc": auc, "f1": f1_per_victim(estimate.decisions, labels, mask)}
    roc = roc_per_victim(estimate.scores, labels, mask, ROC_GRID)[~auc.isnan()]
    return Scores(metrics, mask.sum(1), ((labels > 0.5) & mask).sum(1), roc)


_SCORERS: dict[type[Estimate], Scorer] = {InteractionEstimate: score_interactions}
