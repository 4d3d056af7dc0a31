"""What a server can say of a user's vector without reading a message."""

import torch

from attacks.base import ITEM_EMBEDDING, Attack, ServerView, ThreatModel, VectorEstimate
from attacks.identifiability.messages import LEANING

_NEEDS = ("served", f"deltas:{ITEM_EMBEDDING}", "learner")


class RandomVector(Attack):
    """A random direction: what any attack must beat; it is wrong about half of the items.

    Threat model: a server that does not look at the messages.
    """

    name = "chance"
    threat_model = ThreatModel(sees="nothing of the update", knows="how long a user's vector is", needs=_NEEDS)
    estimates = VectorEstimate

    def run(self, view: ServerView, *, generator: torch.Generator) -> VectorEstimate:
        """See `Attack.run`."""
        view.margin_learner()
        shape = view.victims, view.deltas[ITEM_EMBEDDING].shape[-1]
        return VectorEstimate(vectors=torch.randn(shape, generator=generator, dtype=torch.float64))


class MeanItem(Attack):
    """The mean item vector, turned away from the items where the client dislikes more than it likes.

    Users of one recommender are alike: most like the same few items and dislike the mean one. An estimate that is no
    better than this has learned nothing of *this* user.

    Threat model: a server that reads its own model, and knows which way each client leans.
    """

    name = "mean-item"
    threat_model = ThreatModel(
        sees="nothing of the update", knows="its own model, and which way each client leans", needs=_NEEDS
    )
    estimates = VectorEstimate

    def run(self, view: ServerView, *, generator: torch.Generator) -> VectorEstimate:
        """See `Attack.run`."""
        view.margin_learner()
        leaning = view.auxiliary.get(LEANING, -torch.ones(view.victims)).double()
        return VectorEstimate(vectors=leaning[:, None] * view.model[ITEM_EMBEDDING].double().mean(0))
