"""What records change at a linear layer in the clients' known step, and to what precision."""

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.linear_layer import LayerUpdate, has_classes, layer_errors
from fedleak.attacks.reconstruction.record_candidates import RecordErrors
from fedleak.client.network import NetworkAlgorithm
from fedleak.core.view import RoundView

ROUNDING = 16 * torch.finfo(torch.float32).eps
"""Relative error of a step in single precision."""


def record_errors(view: RoundView, layer: LayerUpdate, model: dict[str, Tensor], victim: int) -> RecordErrors | None:
    """What each record of each class changes at the layer in one step; None unless the clients make one known step."""
    algorithm = view.algorithm
    counts = view.example_counts[victim : victim + 1]
    if not has_classes(algorithm) or int(algorithm.steps(counts)) != 1:
        return None
    return errors_at(algorithm, layer, model)


def errors_at(algorithm: NetworkAlgorithm, layer: LayerUpdate, model: dict[str, Tensor]) -> RecordErrors:
    """What each record of each class changes at the layer by a gradient at a model."""
    double = {name: value.double() for name, value in model.items()}

    def errors(records: Tensor) -> Tensor:
        return layer_errors(algorithm, double, records.reshape(len(records), *layer.shape), layer.name)

    return errors


def rounding_length(layer: LayerUpdate, victim: int, weight: Tensor) -> float:
    """Length of the rounding of a client's update: of a step in single precision, and of the changed weights."""
    rounding = (ROUNDING + layer.precision) * float(layer.rows_of(victim).norm())
    return rounding + torch.finfo(weight.dtype).eps * float(weight.double().norm())


def declared_rate(view: RoundView, victim: int) -> float | None:
    """What the change by one row is multiplied by in a client's update, by its number of examples; None if unknown."""
    if not has_classes(view.algorithm):
        return None
    counts = view.example_counts[victim : victim + 1]
    step_sums = view.algorithm.step_sums(counts)
    if step_sums is None:
        return None
    # Each row's gradient is weighted by 1 / N in the mean.
    return float(step_sums[0]) / max(int(counts), 1)
