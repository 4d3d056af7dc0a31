"""Estimate of interactions: with which of the served items a client interacted."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.applicability import without_shown_items
from fedleak.core.answers import Choices
from fedleak.core.attack import Attack
from fedleak.core.estimates import ROC_GRID, Candidates, Estimate, Scores, check_tensor
from fedleak.core.scoring import auc_per_victim, best_decisions, f1_per_victim, roc_per_victim
from fedleak.core.view import View


@dataclass(frozen=True, kw_only=True)
class InteractionEstimate(Estimate):
    """Which of the served items a client interacted with.

    Attributes:
        scores: ``(V, R)``, higher means more likely interacted; ignored where padded.
        decisions: ``(V, R)`` bool, the attack's own decisions, made without the ground truth; False where padded.
    """

    inferred = "which of the items it was shown the client interacted with"
    truth = ("labels",)
    metrics = ("auc", "f1")
    scores: Tensor
    decisions: Tensor

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_shown_items(view, truth)

    def check(self, view: View) -> None:
        mask = view.served_mask
        check_tensor("decisions", self.decisions, tuple(mask.shape), dtype=torch.bool)
        check_tensor("scores", self.scores, tuple(mask.shape), finite=False)  # padding may be anything
        check_tensor("scores of served items", self.scores[mask], (int(mask.sum()),))

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """AUC of the scores and F1 of the decisions over each victim's served items."""
        mask = view.served_mask
        # Truth beyond the served items of the view is padding.
        return self._scored(mask, truth["labels"][:, : mask.shape[1]])

    def _scored(self, mask: Tensor, labels: Tensor) -> Scores:
        auc = auc_per_victim(self.scores, labels, mask)
        metrics = {"auc": auc, "f1": f1_per_victim(self.decisions, labels, mask)}
        roc = roc_per_victim(self.scores, labels, mask, ROC_GRID).masked_fill(auc.isnan()[:, None], torch.nan)
        is_positive = (labels > 0.5) & mask

        def rescored(odds: Tensor) -> Scores:
            return _posterior(odds)._scored(mask, labels)

        return Scores(
            metrics,
            mask.sum(1),
            is_positive.sum(1),
            roc=roc,
            candidates=Candidates.of_rows("did the client interact with this item?", self.scores, labels, mask),
            answers=Choices.of_matrix(self.scores, labels, rescored, mask),
        )


def _posterior(odds: Tensor) -> InteractionEstimate:
    """Estimate of log odds ``(V, R)``, with the decisions of largest expected F1."""
    decisions, _ = best_decisions(odds.sigmoid())
    return InteractionEstimate(scores=odds, decisions=decisions)


class InteractionAttack(Attack):
    """Base class of attacks that infer with which of the served items a client interacted."""

    estimates = InteractionEstimate
