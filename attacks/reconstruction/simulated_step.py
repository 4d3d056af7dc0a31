"""Whether texts explain a whole update: the client's step on them, simulated, and compared number by number."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedleak.client.algorithm import ExampleAlgorithm
from fedleak.client.text import EMBEDDING
from fedleak.core.view import RoundView

_EQUAL = 1e-4
"""Relative distance of equal updates: the order of texts and of sums, and rounding to float32, change a layer by 1e-6
to 2e-5. One other word changes some layer by 2e-2 or more, in a batch of 64 sentences too."""
_SMALL = 1e-3
"""Layers are compared relative to at least this share of the whole update: gradients that cancel are pure rounding."""


def explains(view: RoundView, victim: int, texts: Tensor) -> bool:
    """Whether one local step on texts ``(M, L)``, padded with 0, gives the victim's update up to rounding.

    The view is of clients that take one step of plain gradient descent, and send it as it is.
    """
    learner = view.require(ExampleAlgorithm)
    algorithm, cohort = learner.encode(texts, torch.zeros(len(texts)), torch.arange(len(texts))[None])
    with torch.enable_grad():
        update = algorithm.train(view.model, cohort)
    simulated = _whole(update.deltas, update.rows, view.model, 0)
    received = _whole(view.deltas, {} if view.served is None else {EMBEDDING: view.served_items}, view.model, victim)
    size = float(torch.stack([value.norm() for value in received.values()]).norm())
    return all(
        float((value - simulated[name]).norm()) <= _EQUAL * max(float(value.norm()), _SMALL * size)
        for name, value in received.items()
    )


def _whole(
    deltas: Mapping[str, Tensor], rows: Mapping[str, Tensor], model: Mapping[str, Tensor], client: int
) -> dict[str, Tensor]:
    """One client's changes of whole parameters, in double precision."""
    found = {}
    for name, change in deltas.items():
        own = change[client].double()
        if own.shape != model[name].shape:
            real = rows[name][client] >= 0
            table = own.new_zeros(model[name].shape)
            own = table.index_add_(0, rows[name][client][real], own[: len(real)][real])
        found[name] = own
    return found
