"""The direction attack: clicked items move one way, all others the other way."""

import torch
from torch import Tensor

from attacks.base import ITEM_EMBEDDING, Attack, InteractionEstimate, ServerView, ThreatModel


def leading_projection(rows: Tensor, mask: Tensor) -> Tensor:
    """Projects each victim's rows on their leading right singular vector, the rarer side positive.

    Args:
        rows: item deltas ``(V, R, d)``, zero where padded.
        mask: ``(V, R)`` True for real rows.

    Returns:
        ``(V, R)``; where both sides are as many, the side of the larger mean size is positive.
    """
    gram = torch.einsum("vrd,vre->vde", rows.double(), rows.double())
    leading = torch.linalg.eigh(gram).eigenvectors[..., -1]
    projected = torch.einsum("vrd,vd->vr", rows.double(), leading)
    above, below = (projected > 0) & mask, (projected < 0) & mask
    size = projected.abs()
    mean_above = (size * above).sum(1) / above.sum(1).clamp(min=1)
    mean_below = (size * below).sum(1) / below.sum(1).clamp(min=1)
    tie = above.sum(1) == below.sum(1)
    flip = torch.where(tie, mean_above < mean_below, above.sum(1) > below.sum(1))
    return torch.where(flip[:, None], -projected, projected)


class Direction(Attack):
    """Leading singular vector of a client's item deltas; ours.

    Of a recommender's client, every item's delta lies close to one line, and the items it interacted with lie on the
    other side than those it did not. Cost: one 64 x 64 eigenproblem per victim.

    Threat model: passive server, one round, no knowledge of the training algorithm. It assumes that a client
    interacted with fewer than half of the items it was served.
    """

    name = "direction"
    threat_model = ThreatModel(
        sees="the update of the item embeddings and which items were served",
        knows="that fewer than half of the served items were interacted with",
        needs=("served", f"deltas:{ITEM_EMBEDDING}"),
    )

    def run(self, view: ServerView, *, generator: torch.Generator) -> InteractionEstimate:
        """See `Attack.run`."""
        mask = view.served_mask
        scores = leading_projection(view.deltas[ITEM_EMBEDDING], mask)
        return InteractionEstimate(scores=scores, decisions=(scores > 0) & mask)
