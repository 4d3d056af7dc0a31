"""Clients that click in ranked lists of documents, whose features or order the server chose."""

from typing import Literal

import torch
from torch import Tensor

from fedleak.client.click_models import sample_patterns, uniform_log_law
from fedleak.client.foltr_es import UTILITY, FOLtRESAlgorithm
from fedleak.client.fpdgd import FPDGDAlgorithm
from fedleak.client.ranking import ranker_parameters
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.server.codebook import Codebook
from fedleak.server.noise_injection import NoiseInjection

CLIENTS, LISTS, LENGTH, FEATURES = 12, 2, 6, 46
GRADES = (0.8, 0.13, 0.07)
"""Share of each grade of relevance among the documents."""
Kind = Literal["noise", "codes", "metrics"]
"""Features of noise, features of codes, or real ones of clients that send the value of a metric alone."""


def toy(kind: Kind = "noise") -> tuple[RoundView, dict[str, Tensor]]:
    """What the server sees of clients after a step for each list, and the clicks, ``labels (V, R)``."""
    generator = generator_for(0, "ranking toy")
    if kind == "metrics":
        return _metrics(generator)
    mask = torch.ones(CLIENTS, LISTS, LENGTH, dtype=torch.bool)
    clicks = sample_patterns(uniform_log_law(mask), generator)
    model = ranker_parameters(FEATURES, 0, generator)
    real = torch.rand(*mask.shape, FEATURES, generator=generator)
    manipulation = Codebook() if kind == "codes" else NoiseInjection()
    features = manipulation.features(model, real, mask, generator=generator)
    algorithm = FPDGDAlgorithm(learning_rate=0.1, click_model="informational", grade_law=GRADES)
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(CLIENTS),
        example_counts=torch.full((CLIENTS,), LISTS),
        deltas=algorithm.simulate_lists(model, features, mask, clicks),
        model=model,
        served=torch.arange(mask[0].numel()).expand(CLIENTS, -1),
        lists=torch.arange(LISTS).repeat_interleave(LENGTH).expand(CLIENTS, -1),
        features=features.flatten(1, 2),
        algorithm=algorithm,
    )
    return view, {"labels": clicks.flatten(1)}


def _metrics(generator: torch.Generator) -> tuple[RoundView, dict[str, Tensor]]:
    """Clients that send the rank of the first click in one list."""
    mask = torch.ones(CLIENTS, 1, LENGTH, dtype=torch.bool)
    clicks = sample_patterns(uniform_log_law(mask, every=True), generator)
    algorithm = FOLtRESAlgorithm(
        metric="max-rr", numbers=1, truthful=1.0, click_model="informational", grade_law=GRADES
    )
    sent = algorithm.simulate_lists({}, torch.zeros(*mask.shape, 1), mask, clicks)
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(CLIENTS),
        example_counts=torch.ones(CLIENTS, dtype=torch.int64),
        deltas={UTILITY: sent[UTILITY]},
        model={"ranker.weight": torch.zeros(2)},
        served=torch.arange(LENGTH).expand(CLIENTS, -1),
        lists=torch.zeros(CLIENTS, LENGTH, dtype=torch.int64),
        algorithm=algorithm,
    )
    return view, {"labels": clicks.flatten(1)}
