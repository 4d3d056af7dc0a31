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
_NEARLY = 1e-2
"""The same for updates of an unknown scale, which may be small, so that rounding is a larger part of them."""
_SMALL = 1e-3
"""Layers are compared relative to at least this share of the whole update: gradients that cancel are pure rounding."""


def explains(view: RoundView, victim: int, texts: Tensor, *, is_scale_known: bool = True) -> bool:
    """Whether one local step on texts ``(M, L)``, padded with 0, gives the victim's update up to rounding.

    The view is of clients that take one step of gradient descent, and send it as it is; or, if its scale is not known,
    times one positive factor, which is no proof.
    """
    learner = view.require(ExampleAlgorithm)
    algorithm, cohort = learner.encode(texts, torch.zeros(len(texts)), torch.arange(len(texts))[None])
    with torch.enable_grad():
        update = algorithm.train(view.model, cohort)
    simulated = _parameter_changes(update.deltas, update.rows, view.model, 0)
    served = {} if view.served is None else {EMBEDDING: view.served_items}
    received = _parameter_changes(view.deltas, served, view.model, victim)
    size = float(torch.stack([value.norm() for value in received.values()]).norm())
    tolerance = _EQUAL
    if not is_scale_known:
        tolerance = _NEARLY
        # The factor of least squares, <simulated, received> / <simulated, simulated>.
        product = sum(float((simulated[name] * value).sum()) for name, value in received.items())
        square = sum(float(simulated[name].square().sum()) for name in received)
        factor = max(product, 0.0) / max(square, 1e-300)
        simulated = {name: factor * value for name, value in simulated.items()}
    for name, value in received.items():
        misfit = float((value - simulated[name]).norm())
        if not misfit <= tolerance * max(float(value.norm()), _SMALL * size):
            return False
    return True


def _parameter_changes(
    deltas: Mapping[str, Tensor], rows: Mapping[str, Tensor], model: Mapping[str, Tensor], client: int
) -> dict[str, Tensor]:
    """One client's changes of whole parameters, in double precision."""
    changes = {}
    for name, delta in deltas.items():
        change = delta[client].double()
        if change.shape != model[name].shape:
            # The rows of a table that the client was served, padded with -1.
            numbers = rows[name][client]
            is_row = numbers >= 0
            table = change.new_zeros(model[name].shape)
            change = table.index_add_(0, numbers[is_row], change[: len(is_row)][is_row])
        changes[name] = change
    return changes
