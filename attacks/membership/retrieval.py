"""Estimate of membership, and the membership of a document among those that a client retrieved privately."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.applicability import without_shown_items
from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Candidates, Estimate, Scores, check_tensor
from fedleak.core.rankers import HIDDEN, LINEAR
from fedleak.core.scoring import wins_over_negatives
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView, View
from fedleak.server.marked_document import marked_feature


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
        metrics = {
            "auc": wins,
            "tpr": decided.masked_fill(~member, torch.nan),
            "fpr": decided.masked_fill(member, torch.nan),
        }
        # All clients are candidates of one question.
        return Scores(
            metrics,
            torch.ones_like(member, dtype=torch.int64),
            member.long(),
            candidates=Candidates("is this the client's record?", self.scores, member, torch.arange(len(member))),
        )


class RetrievalEstimate(MembershipEstimate):
    """Whether the client retrieved the marked document."""

    inferred = "whether the client retrieved a certain document"

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_shown_items(view, truth)


class RetrievalFingerprint(Attack):
    """Fingerprinting of private retrieval: norm, or likelihood ratio, of the update's entries of the marked feature.

    Only the marked document has this feature. Without noise, the entries are zero unless the client trained on the
    document, so any other value decides. (They are also zero if the document's list changes nothing, or no hidden unit
    is active for it: the attack then errs.) With noise, the decision is the likelihood ratio of entries as large as the
    clip norm against none.

    Threat model: an active server (`fedleak.server.marked_document.MarkedDocument`); it does not know which documents a
    client retrieved.

    Raises:
        ViewError: the ranker's first layer was not recorded, or clients add noise without clipping.

    References:
        This project; the manipulation is that of [Pham25], section VII.C.

    Example:
        >>> import torch
        >>> from fedleak.attacks.membership import RetrievalFingerprint
        >>> from fedleak.attacks.membership.toy import toy
        >>> view, truth = toy()
        >>> estimate = RetrievalFingerprint()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].nanmean()), 2)
        1.0
    """

    name = "pir-fingerprint"
    family = "membership"
    exact = True
    threat_model = ThreatModel(
        sees="each client's update, clip norm and noise scale; not what it retrieved",
        knows="the feature that only the marked document has",
        needs=("deltas",),
    )
    estimates = RetrievalEstimate

    def run(self, view: RoundView, *, generator: torch.Generator) -> RetrievalEstimate:
        name = HIDDEN
        if LINEAR in view.deltas:
            name = LINEAR
        if name not in view.deltas:
            raise ViewError(f"expected the deltas of {LINEAR} or {HIDDEN}, got those of {', '.join(view.deltas)}")
        # The column of the marked feature: one entry for each hidden unit, or one of a linear ranker.
        features = view.deltas[name].shape[-1]
        delta = view.deltas[name].double().reshape(view.victims, -1, features)
        marked = marked_feature(view.sent_models())
        entries = delta.gather(2, marked[:, None, None].expand(-1, delta.shape[1], 1)).squeeze(2)
        noise = view.noise_scale(name)
        clip = view.clip(name)
        if not noise:
            scores = entries.norm(dim=1)
            return RetrievalEstimate(scores=scores, decisions=scores > 0)
        if clip is None:
            raise ViewError("expected clients that clip what they noise, got no clip norm")
        # An update of the clip norm, all of it in these entries.
        spread = clip / math.sqrt(entries.shape[1])
        ratio = log_likelihood_ratio(entries, noise=noise, spread=spread)
        return RetrievalEstimate(scores=ratio, decisions=ratio > 0)


def log_likelihood_ratio(entries: Tensor, *, noise: float, spread: float) -> Tensor:
    """``(V,)`` log-likelihood ratio for ``entries (V, H)`` of Gaussian signal plus noise to noise alone."""
    # log N(x; 0, noise^2 + spread^2) - log N(x; 0, noise^2), summed over the H entries.
    variance = noise**2 + spread**2
    energy = entries.square().sum(1)
    return energy / 2 * (1 / noise**2 - 1 / variance) - entries.shape[1] / 2 * math.log(variance / noise**2)
