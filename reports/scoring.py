"""From an estimate and the truth to numbers: one scorer for each kind of estimate."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attacks.base import (
    ITEM_EMBEDDING,
    CompositionEstimate,
    Estimate,
    InteractionEstimate,
    MembershipEstimate,
    ServerView,
    VectorEstimate,
)
from attacks.deanonymization.estimates import IdentityEstimate, MatchingEstimate
from attacks.metrics import (
    auc_per_victim,
    composition_errors,
    f1_per_victim,
    null_class_errors,
    roc_per_victim,
    wins_over_negatives,
)

_ROUNDING = 1e-6
"""Of float32 shares, e.g. of a client of one class."""
ROC_GRID = torch.linspace(0, 1, 101)


@dataclass(frozen=True)
class Scores:
    """What an estimate is worth.

    Attributes:
        metrics: by metric, ``(V,)``; NaN where it is not defined for a victim.
        items: ``(V,)`` how much was to be told of each victim, e.g. the number of its items.
        positives: ``(V,)`` how many of them were true.
        roc: ``(K, G)`` true-positive rates at `ROC_GRID` of the victims that have one, None where that means nothing.
        profiles: ``(V, K, 4)`` true share, inferred share and the ends of its interval of every class, None where the
            attack infers no composition.
    """

    metrics: dict[str, Tensor]
    items: Tensor
    positives: Tensor
    roc: Tensor | None = None
    profiles: Tensor | None = None


TRUTH: dict[type[Estimate], tuple[str, ...]] = {
    CompositionEstimate: ("class_counts",),
    InteractionEstimate: ("labels",),
    MembershipEstimate: ("member",),
    VectorEstimate: ("user_vector", "labels"),
}
"""What must be known of the victims to score each kind of estimate."""
MEASURES: dict[type[Estimate], tuple[str, ...]] = {
    CompositionEstimate: ("l1", "l2", "linf", "null_false_positive", "null_false_negative", "coverage"),
    IdentityEstimate: ("ap", "times-chance", "times-random", "top1", "top5"),
    InteractionEstimate: ("auc", "f1"),
    MatchingEstimate: ("ap", "times-chance"),
    MembershipEstimate: ("auc", "tpr", "fpr"),
    VectorEstimate: ("error", "label-error", "cosine", "flipped"),
}
"""The metrics of each kind of estimate; identities and matches are scored by `reports.identities`."""
FAMILIES: dict[type[Estimate], str] = {
    CompositionEstimate: "composition",
    IdentityEstimate: "deanonymization",
    InteractionEstimate: "interactions",
    MatchingEstimate: "deanonymization",
    MembershipEstimate: "membership",
    VectorEstimate: "identifiability",
}
"""The question that each kind of estimate answers."""
Scorer = Callable[[Any, ServerView, Mapping[str, Tensor]], Scores]


def score(estimate: Estimate, view: ServerView, truth: Mapping[str, Tensor]) -> Scores:
    """Scores an estimate.

    Args:
        estimate: what an attack said of the victims of `view`.
        view: what it was given.
        truth: of the same victims, see `datamodules.deltas.Recording.truth`.

    Raises:
        KeyError: estimates of this kind cannot be scored; see `can_score`.
    """
    return _SCORERS[type(estimate)](estimate, view, truth)


def can_score(kind: type[Estimate]) -> bool:
    """Whether estimates of this kind can be scored one view at a time."""
    return kind in _SCORERS


def score_interactions(estimate: InteractionEstimate, view: ServerView, truth: Mapping[str, Tensor]) -> Scores:
    """AUC of the scores and F1 of the decisions over each victim's served items."""
    mask = view.served_mask
    labels = truth["labels"][:, : mask.shape[1]]
    auc = auc_per_victim(estimate.scores, labels, mask)
    metrics = {"auc": auc, "f1": f1_per_victim(estimate.decisions, labels, mask)}
    roc = roc_per_victim(estimate.scores, labels, mask, ROC_GRID)[~auc.isnan()]
    return Scores(metrics, mask.sum(1), ((labels > 0.5) & mask).sum(1), roc)


def score_vectors(estimate: VectorEstimate, view: ServerView, truth: Mapping[str, Tensor]) -> Scores:
    """How well estimated private vectors predict as the clients' own do (London 2020, Definition 1, Proposition 1).

    ``error`` is the share of the catalogue on which ``sgn(u.v)`` differs, ``label-error`` the share of the client's
    labelled items on which the estimate contradicts the label, ``cosine`` that with the client's vector, ``flipped``
    1 where it is negative.
    """
    table, mask = view.model[ITEM_EMBEDDING].double(), view.served_mask
    guess, own = estimate.vectors.double(), truth["user_vector"].double()
    error = ((guess @ table.T).sign() != (own @ table.T).sign()).double().mean(1)
    labels = truth["labels"][:, : mask.shape[1]] > 0.5
    told = torch.einsum("vd,vrd->vr", guess, table[view.served.clamp(min=0)]) > 0  # type: ignore[union-attr]
    wrong = ((told != labels) & mask).sum(1) / mask.sum(1)
    cosine = torch.nn.functional.cosine_similarity(guess, own, dim=1)
    metrics = {"error": error, "label-error": wrong, "cosine": cosine, "flipped": (cosine < 0).double()}
    return Scores(metrics, mask.sum(1), (labels & mask).sum(1))


def score_members(estimate: MembershipEstimate, _: ServerView, truth: Mapping[str, Tensor]) -> Scores:
    """AUC of the scores over the clients of the view, and rates of the decisions.

    Each member has the share of the others that it outranks, ties half; their mean is the AUC. ``tpr`` is defined for
    members, ``fpr`` for the others.
    """
    member = truth["member"] > 0.5
    wins = torch.full((len(member),), torch.nan, dtype=torch.float64)
    if bool(member.any()) and not bool(member.all()):
        wins[member] = wins_over_negatives(estimate.scores, member)
    decided = estimate.decisions.double()
    rates = {"tpr": decided.masked_fill(~member, torch.nan), "fpr": decided.masked_fill(member, torch.nan)}
    return Scores({"auc": wins, **rates}, torch.ones_like(member, dtype=torch.int64), member.long())


def score_compositions(estimate: CompositionEstimate, _: ServerView, truth: Mapping[str, Tensor]) -> Scores:
    """Distances of proportions (Decaf, equation 3), errors about null classes, and whether intervals hold the truth."""
    counts = truth["class_counts"].double()
    shares = counts / counts.sum(1, keepdim=True)
    inferred = estimate.proportions.double()
    held = counts > 0
    metrics = composition_errors(inferred, shares) | null_class_errors(estimate.present, held)
    inside = (shares >= estimate.low - _ROUNDING) & (shares <= estimate.high + _ROUNDING)
    told = (held | estimate.present) & estimate.low.isfinite()
    if bool(told.any()):
        metrics["coverage"] = (inside & told).sum(1) / told.sum(1).double().masked_fill(~told.any(1), torch.nan)
    profiles = torch.stack([shares, inferred, estimate.low.double(), estimate.high.double()], dim=2)
    return Scores(metrics, torch.full((len(counts),), counts.shape[1]), held.sum(1), profiles=profiles)


_SCORERS: dict[type[Estimate], Scorer] = {
    CompositionEstimate: score_compositions,
    InteractionEstimate: score_interactions,
    MembershipEstimate: score_members,
    VectorEstimate: score_vectors,
}
