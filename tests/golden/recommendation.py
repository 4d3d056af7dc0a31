"""Inputs and outputs of RAIFLE's published code for recommendation, on drawn data."""

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedleak.client.fncf import FNCFAlgorithm
from fedleak.core.view import ITEM_EMBEDDING, RoundView
from fedleak.defenses.update_l1 import UpdateL1
from fedleak.modules.learners.fncf import PAPER_LOCAL
from tests.places import ROOT

VICTIMS = range(3)


@functools.cache
def golden() -> dict[str, Tensor]:
    """The arrays of the file, without its text on where they come from."""
    with np.load(ROOT / "tests/golden/raifle_recommendation.npz", allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files if name != "provenance"}


def published_model() -> dict[str, Tensor]:
    """The item table and network of the published code's clients."""
    network = {name: value for name, value in golden().items() if name.startswith("mlp.")}
    return {ITEM_EMBEDDING: golden()["items"], **network}


def published_clients(strength: float = 0.0) -> FNCFAlgorithm:
    """Clients with the published training, and with IMIA's defence of a strength."""
    return FNCFAlgorithm(user_dim=6, local=PAPER_LOCAL, update_l1=UpdateL1(strength=strength) if strength else None)


def published_view(victim: int, **changes: Any) -> RoundView:
    """What the published attacks were given: a client's change, its items and the model."""
    rows = golden()[f"rows{victim}"]
    fields: dict[str, Any] = {
        "round": 0,
        "pseudonyms": torch.zeros(1, dtype=torch.long),
        "example_counts": torch.tensor([len(rows)]),
        "deltas": {ITEM_EMBEDDING: -golden()[f"change{victim}_mu0"][None]},
        "model": published_model(),
        "row_parameters": frozenset([ITEM_EMBEDDING]),
        "served": rows[None],
        "algorithm": published_clients(),
    }
    return RoundView(**fields | changes)
