"""What others like: a prior, not an attack on the update."""

import torch

from attacks.base import Attack, InteractionEstimate, ServerView, ThreatModel
from attacks.interactions.thresholds import two_means

POPULARITY = "popularity"
"""Auxiliary ``(V, R)``: how many other users interacted with each served item."""


class Popularity(Attack):
    """Item popularity among other users, reading no update: it stands beside every table, in no attack's number.

    Threat model: a server that knows what other users interacted with and does not look at the victim's update.
    """

    name = "popularity"
    threat_model = ThreatModel(
        sees="which items were served",
        knows="what all other users interacted with",
        needs=("served", f"auxiliary:{POPULARITY}"),
    )

    def run(self, view: ServerView, *, generator: torch.Generator) -> InteractionEstimate:
        """See `Attack.run`."""
        counts = view.auxiliary[POPULARITY].double()
        return InteractionEstimate(scores=counts, decisions=two_means(counts.log1p(), view.served_mask))
