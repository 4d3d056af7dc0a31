"""The leaky toy whose clients trained on other labels."""

import torch

from protocol.seeding import generator_for
from protocol.view import RoundView
from tests.toys import leaky_view


def with_shuffled_labels(view: RoundView, labels: torch.Tensor) -> RoundView:
    """The view of the same clients, whose labels ``(V, R)`` were shuffled among their items before they trained."""
    keys = torch.rand(labels.shape, generator=generator_for(1, "shuffle")).masked_fill(~view.served_mask, 2)
    return leaky_view(victims=view.victims, order=keys.argsort(1))[0]
