"""The row-norm attack: clicked items move further."""

import torch

from attacks.base import ITEM_EMBEDDING, Attack, InteractionEstimate, ServerView, ThreatModel
from attacks.interactions.thresholds import two_means


class RowNorm(Attack):
    """L2 norm of an item's delta; ours.

    One positive weighs as much in the loss as several negatives pull against, so its embedding moves further. IMIA's L1
    penalty (`defenses.update_l1`) makes all rows move less, but not alike, and does not hide it. The decision splits
    the logarithms of a victim's norms into two groups.

    Threat model: passive server, one round, no knowledge of the training algorithm.
    """

    name = "row-norm"
    threat_model = ThreatModel(
        sees="the update of the item embeddings and which items were served",
        knows="nothing else",
        needs=("served", f"deltas:{ITEM_EMBEDDING}"),
    )

    def run(self, view: ServerView, *, generator: torch.Generator) -> InteractionEstimate:
        """See `Attack.run`."""
        norms = view.deltas[ITEM_EMBEDDING].norm(dim=2)
        smallest = torch.finfo(norms.dtype).tiny
        return InteractionEstimate(scores=norms, decisions=two_means(norms.clamp(min=smallest).log(), view.served_mask))
