"""Attacks that only look at the deltas of the item table: their direction and their length."""

import torch
from torch import Tensor

from attacks.base import Attack
from attacks.estimates import InteractionEstimate
from attacks.interactions.baselines import two_means
from protocol.threat_model import ThreatModel
from protocol.view import ITEM_EMBEDDING, ServerView


class Direction(Attack):
    """Projection of each item's delta on the leading singular vector of the client's item deltas.

    Every item's delta lies close to one line, and the items that the client interacted with lie on the other side than
    those it did not.

    Threat model: passive server, one round, no knowledge of the training algorithm. It assumes that a client
    interacted with fewer than half of the items it was served.
    """

    name = "direction"
    family = "recommendation"
    cost = "one 64 x 64 eigenproblem per victim"
    threat_model = ThreatModel(
        sees="the update of the item embeddings and which items were served",
        knows="that fewer than half of the served items were interacted with",
        needs=("served", f"deltas:{ITEM_EMBEDDING}"),
    )

    def run(self, view: ServerView, *, generator: torch.Generator) -> InteractionEstimate:
        mask = view.served_mask
        scores = leading_projection(view.deltas[ITEM_EMBEDDING], mask)
        return InteractionEstimate(scores=scores, decisions=(scores > 0) & mask)


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


class RowNorm(Attack):
    """L2 norm of each item's delta.

    One positive weighs as much in the loss as several negatives pull against, so its embedding moves further. IMIA's L1
    penalty (`defenses.update_l1`) makes all rows move less, but not alike, and does not hide it. The decision splits
    the logarithms of a victim's norms into two groups.

    Threat model: passive server, one round, no knowledge of the training algorithm.
    """

    name = "row-norm"
    family = "recommendation"
    threat_model = ThreatModel(
        sees="the update of the item embeddings and which items were served",
        knows="nothing else",
        needs=("served", f"deltas:{ITEM_EMBEDDING}"),
    )

    def run(self, view: ServerView, *, generator: torch.Generator) -> InteractionEstimate:
        norms = view.deltas[ITEM_EMBEDDING].norm(dim=2)
        smallest = torch.finfo(norms.dtype).tiny
        return InteractionEstimate(scores=norms, decisions=two_means(norms.clamp(min=smallest).log(), view.served_mask))
