"""Attacks on the direction and the norm of item deltas, without simulated clients."""

import torch
from torch import Tensor

from fedleak.attacks.interactions.baselines import two_means
from fedleak.attacks.interactions.estimates import InteractionAttack, InteractionEstimate
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import ITEM_EMBEDDING, RoundView


class Direction(InteractionAttack):
    """Projection of each item's delta on the leading singular vector of the client's item deltas.

    All deltas of a client are close to one line, and positive and negative items lie on opposite sides.

    Threat model: passive server, one round, no knowledge of the training algorithm. It assumes that a client interacted
    with fewer than half of the served items.

    References:
        This project; the setting is that of [Pham25], section VI.A.

    Example:
        >>> import torch
        >>> from fedleak.attacks.recommendation import Direction
        >>> from fedleak.attacks.recommendation.toy import toy
        >>> view, truth = toy()
        >>> estimate = Direction()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        1.0
    """

    name = "direction"
    family = "recommendation"
    with_prior = "rank"
    cost = "one 64 x 64 eigenproblem per victim"
    threat_model = ThreatModel(
        sees="the update of the item embeddings and which items were served",
        knows="that fewer than half of the served items were interacted with",
        needs=("served", f"deltas:{ITEM_EMBEDDING}"),
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
        mask = view.served_mask
        scores = leading_projection(view.deltas[ITEM_EMBEDDING], mask)
        return InteractionEstimate(scores=scores, decisions=(scores > 0) & mask)


def leading_projection(rows: Tensor, mask: Tensor) -> Tensor:
    """``(V, R)`` projections of item deltas on their leading right singular vector, the rarer side positive.

    If both sides are equally frequent, the side with the larger mean size is positive. Deltas ``(V, R, d)`` outside
    ``mask (V, R)`` must be zero.
    """
    # Leading right singular vectors are the eigenvectors of the largest eigenvalue of the small Gram matrices (d, d).
    gram = torch.einsum("vrd,vre->vde", rows.double(), rows.double())
    leading = torch.linalg.eigh(gram).eigenvectors[..., -1]
    projected = torch.einsum("vrd,vd->vr", rows.double(), leading)
    # The sign of a singular vector is arbitrary: positives are fewer, or else move further.
    above = (projected > 0) & mask
    below = (projected < 0) & mask
    size = projected.abs()
    mean_above = (size * above).sum(1) / above.sum(1).clamp(min=1)
    mean_below = (size * below).sum(1) / below.sum(1).clamp(min=1)
    tie = above.sum(1) == below.sum(1)
    flip = torch.where(tie, mean_above < mean_below, above.sum(1) > below.sum(1))
    return torch.where(flip[:, None], -projected, projected)


class RowNorm(InteractionAttack):
    """L2 norm of each item's delta.

    A positive item has as much weight in the loss as several negative ones, so that its embedding moves further. IMIA's
    L1 penalty (`fedleak.defenses.update_l1`) shrinks all rows, but not equally, and does not hide it. The decision
    splits the logarithms of a victim's norms into two groups.

    Threat model: passive server, one round, no knowledge of the training algorithm.

    References:
        This project; the setting is that of [Pham25], section VI.A.

    Example:
        >>> import torch
        >>> from fedleak.attacks.recommendation import RowNorm
        >>> from fedleak.attacks.recommendation.toy import toy
        >>> view, truth = toy()
        >>> estimate = RowNorm()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        0.49
    """

    name = "row-norm"
    family = "recommendation"
    threat_model = ThreatModel(
        sees="the update of the item embeddings and which items were served",
        knows="nothing else",
        needs=("served", f"deltas:{ITEM_EMBEDDING}"),
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
        norms = view.deltas[ITEM_EMBEDDING].norm(dim=2)
        smallest = torch.finfo(norms.dtype).tiny
        return InteractionEstimate(scores=norms, decisions=two_means(norms.clamp(min=smallest).log(), view.served_mask))
