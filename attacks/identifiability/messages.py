"""What a server has in hand of each client: the summed messages about every item, and how many there were."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.base import ITEM_EMBEDDING, ServerView, ThreatModel, ViewError

LEANING = "leaning"
"""Auxiliary knowledge: ``(V,)``, -1 for a client that dislikes more of its items than it likes, +1 for the contrary."""

THREAT_MODEL = ThreatModel(
    sees="the clients' messages about each item, summed over all interactions, and how often each item was sent",
    knows="the loss and the local learning rate, the noise, and which way each client leans (Assumption 1)",
    active=True,
    needs=("served", f"deltas:{ITEM_EMBEDDING}", "learner"),
)


@dataclass(frozen=True)
class Messages:
    """Messages in float64; row i of a client sums ``updates_i`` times ``-alpha l'(0) y_i u`` plus noise.

    Attributes:
        sums: ``(V, R, d)``, zero where nothing was sent.
        updates: ``(V, R)`` messages in each row, 0 where nothing was sent.
        leaning: ``(V,)`` -1 or +1.
        factor: ``alpha l'(0)``, not zero.
    """

    sums: Tensor
    updates: Tensor
    leaning: Tensor
    factor: float

    @property
    def sent(self) -> Tensor:
        """``(V, R)`` True for the rows about which something was sent."""
        return self.updates > 0


def messages_of(view: ServerView) -> Messages:
    """Reads the messages from a view; where none says which way the clients lean, they dislike more than they like.

    Raises:
        ViewError: the learner is of another kind, its loss breaks Assumption 2, or a client has sent nothing.
    """
    learner = view.margin_learner()
    if learner.slope_at_zero == 0:
        raise ViewError("expected a loss whose derivative at 0 is not zero (Assumption 2), got one that is flat there")
    sums = view.deltas[ITEM_EMBEDDING].double()
    shown = view.served_mask
    changed = (sums.abs().sum(2) > 0) & shown
    updates = changed.double() if view.updates is None else view.updates.double() * shown
    silent = torch.nonzero(updates.sum(1) == 0).flatten().tolist()
    if silent:
        raise ViewError(f"expected messages of every client, got none of the client at {silent[0]} in the view")
    leaning = view.auxiliary.get(LEANING, -torch.ones(view.victims)).double()
    return Messages(sums * shown[..., None], updates, leaning, learner.learning_rate * learner.slope_at_zero)


def facing(vectors: Tensor, votes: Tensor, leaning: Tensor) -> Tensor:
    """Turns each vector so that the votes lean as the client does; a tie leaves it.

    Args:
        vectors: ``(V, d)``.
        votes: ``(V,)``, positive where more items would be liked than not, were the vector the user's.
        leaning: ``(V,)`` -1 or +1.
    """
    return torch.where((votes * leaning < 0)[:, None], -vectors, vectors)
