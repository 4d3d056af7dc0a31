"""Clients that click in lists of documents, one of which the server marked."""

import torch
from torch import Tensor

from fedleak.client.fpdgd import FPDGDAlgorithm
from fedleak.client.ranking import ranker_parameters
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.server.marked_document import MarkedDocument

CLIENTS, LISTS, LENGTH, FEATURES = 40, 2, 4, 12
CLICKED = 1
"""Place in each list that is clicked."""


def toy() -> tuple[RoundView, dict[str, Tensor]]:
    """What the server sees of clients every other of whom is a ``member (V,)``: it retrieved the marked document."""
    generator = generator_for(0, "membership toy")
    features = torch.rand(CLIENTS, LISTS, LENGTH, FEATURES, generator=generator)
    mask = torch.ones(CLIENTS, LISTS, LENGTH, dtype=torch.bool)
    clicks = torch.zeros(mask.shape)
    clicks[..., CLICKED] = 1
    document = torch.rand(FEATURES, generator=generator)
    member = torch.arange(CLIENTS) % 2 == 0
    features[member, 0, CLICKED] = document

    model = ranker_parameters(FEATURES, 0, generator, scaled=True)
    sent = MarkedDocument(document=document).features(model, features, mask, generator=generator)
    algorithm = FPDGDAlgorithm(learning_rate=0.1, click_model="informational", grade_law=[0.8, 0.1, 0.1])
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(CLIENTS),
        example_counts=torch.full((CLIENTS,), LISTS),
        deltas=algorithm.simulate_lists(model, sent, mask, clicks),
        model=model,
        manipulation="mark",
    )
    return view, {"member": member}
