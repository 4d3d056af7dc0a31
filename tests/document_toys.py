"""Clients that click in lists of documents, one of which the server marked."""

import torch

from fedleak.client.fpdgd import FPDGDAlgorithm
from fedleak.client.ranking import ranker_parameters
from fedleak.core.release import Release
from fedleak.core.view import RoundView
from fedleak.server.marked_document import MarkedDocument
from tests.attacks.runs import plain_view

VICTIMS = 40


def marked_view(hidden: int = 0, noise: float = 0.0) -> tuple[RoundView, torch.Tensor]:
    """Clients of two lists of four documents, of whom every other one holds the marked document and clicks it."""
    source = torch.Generator().manual_seed(0)
    features = torch.rand(VICTIMS, 2, 4, 12, generator=source)
    mask = torch.ones(VICTIMS, 2, 4, dtype=torch.bool)
    clicks = (torch.arange(4) == 1).float().expand(VICTIMS, 2, 4).clone()
    document = torch.rand(12, generator=source)
    held = torch.arange(VICTIMS) % 2 == 0
    features[held, 0, 1] = document
    model = ranker_parameters(12, hidden, source, scaled=True)
    sent = MarkedDocument(document=document).features(model, features, mask, generator=source)
    learner = FPDGDAlgorithm(learning_rate=0.1, click_model="informational", grade_law=[0.8, 0.1, 0.1])
    deltas = learner.simulate_lists(model, sent, mask, clicks)
    view = plain_view(
        VICTIMS,
        deltas={name: value + noise * torch.randn(value.shape, generator=source) for name, value in deltas.items()},
        model=model,
        releases=(Release(clip=1.0, noise_scale=noise, parameters=tuple(deltas)),) if noise else (),
        manipulation="mark",
    )
    return view, held
