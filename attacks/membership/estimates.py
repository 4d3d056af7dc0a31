"""Estimate of membership: whether one record is among a client's data."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.estimates import Candidates, Estimate, Scores, check_tensor
from attacks.scoring import wins_over_negatives
from protocol.view import View


@dataclass(frozen=True, kw_only=True)
class MembershipEstimate(Estimate):
    """Whether a given record was in a client's data.

    Attributes:
        scores: ``(V,)``, higher means more likely.
        decisions: ``(V,)`` bool, the attack's own decisions, made without the ground truth.
    """

    inferred = "whether a given record is among the client's data"
    truth = ("member",)
    metrics = ("auc", "tpr", "fpr")
    scores: Tensor
    decisions: Tensor

    def check(self, view: View) -> None:
        check_tensor("scores", self.scores, (view.victims,))
        check_tensor("decisions", self.decisions, (view.victims,), dtype=torch.bool)

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """AUC of the scores over the clients of the view, and rates of the decisions.

        ``auc`` of a member is the share of non-members ranked below it, ties half; the mean is the AUC. ``tpr`` is
        defined for members, ``fpr`` for non-members.
        """
        member = truth["member"] > 0.5
        wins = torch.full((len(member),), torch.nan, dtype=torch.float64)
        if bool(member.any()) and not bool(member.all()):
            wins[member] = wins_over_negatives(self.scores, member)
        decided = self.decisions.double()
        rates = {"tpr": decided.masked_fill(~member, torch.nan), "fpr": decided.masked_fill(member, torch.nan)}
        candidates = Candidates("is this the client's record?", self.scores, member, torch.arange(len(member)))
        return Scores(
            {"auc": wins, **rates}, torch.ones_like(member, dtype=torch.int64), member.long(), candidates=candidates
        )
