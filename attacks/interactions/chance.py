"""Guessing."""

import torch

from attacks.base import Attack, InteractionEstimate, ServerView, ThreatModel


class Chance(Attack):
    """Random scores: what any attack must beat.

    Threat model: a server that does not look at the update.

    Args:
        positive_share: share of the served items that is guessed to be interacted with (the paper serves 4:1).
    """

    name = "chance"
    threat_model = ThreatModel(sees="which items were served", knows="nothing else", needs=("served",))

    def __init__(self, *, positive_share: float = 0.2) -> None:
        if not 0 < positive_share < 1:
            raise ValueError(f"expected positive_share in (0, 1), got {positive_share}; the papers serve 0.2")
        self.positive_share = positive_share

    def run(self, view: ServerView, *, generator: torch.Generator) -> InteractionEstimate:
        """See `Attack.run`."""
        scores = torch.rand(view.served_mask.shape, generator=generator)
        return InteractionEstimate(scores=scores, decisions=(scores > 1 - self.positive_share) & view.served_mask)
