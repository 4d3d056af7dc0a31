"""What the numbers of updates show of how they were made: rounded, quantised, sparse, noisy, at a first step.

Each is measured, not declared. Attacks that solve for records or words need the numbers as they were computed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.client.network import ClassifierAlgorithm
from fedleak.core.view import RoundView

_EXACT = ("recovered", "f1")
"""Metrics of attacks that need the numbers as they were computed."""
_FLOAT32_BITS = 24
"""Significant bits of a float32."""
_FEW_BITS = 12
"""Significant bits up to which numbers are of a shorter type; float16 has 11, bfloat16 8."""
_MOST_LEVELS = 2**16
"""Multiples of one step up to which a tensor is quantised; random numbers of its size have far more."""
_OFF_GRID = 0.02
"""Distance from a multiple of the step, in steps, that float32 explains for as many levels."""
_FEWEST_VALUES = 8
"""Different values below which being multiples of one step shows nothing."""
_SPARSE = 0.3
"""Share of zeros from which an update is sparse."""
_SMALL = 0.1
"""Size, relative to the median of the numbers that are not zero, below which about 5 % of normal numbers are."""
_FEWEST_NUMBERS = 200
"""Numbers of which none is that small with a probability of 1e-5, if they are normal."""
_BEYOND_ROUNDING = 30.0
"""Factor over the rounding error of sums from which an error is no rounding of float32."""
_UNEXPLAINED = 0.3
"""Part of the sums over classes that weight decay must leave unexplained at most."""
_LARGE = 0.3
"""Error relative to the numbers above which it is no small noise, e.g. that of another loss."""


@dataclass(frozen=True)
class Finding:
    """How the numbers of updates were made.

    Attributes:
        cause: ``precision``, ``quantised``, ``sparse``, ``decay``, ``small-noise`` or ``first-step``.
        sentence: sentence of a report.
        measured: its numbers.
        metrics: metrics of the attacks that it can explain; None for all.
    """

    cause: str
    sentence: str
    measured: dict[str, float]
    metrics: tuple[str, ...] | None = _EXACT


def found_in_numbers(views: Sequence[RoundView]) -> list[Finding]:
    """What the updates of some views of a recording show."""
    view = views[0]
    # Rows of a table that a client did not use are padding.
    without_tables = [delta for name, delta in view.deltas.items() if name not in view.row_parameters]
    tensors = [delta for delta in without_tables if delta.is_floating_point() and bool(delta.any())]
    if not tensors:
        return []
    # Each of these explains the following ones: coarse steps round to zero, and all of them leave errors.
    origin = _quantised(tensors) or _precision(tensors) or _sparse(tensors) or _errors_of_last_layer(view)
    return [finding for finding in (origin, _first_step(view)) if finding is not None]


def significant_bits(numbers: Tensor) -> int:
    """Largest number of significant bits of float32 numbers; 0 if all are zero.

    >>> significant_bits(torch.tensor([0.0, 1.0, 0.75, -2.5]))
    3
    """
    mantissas = torch.frexp(numbers[numbers != 0].double())[0]
    # The fewest bits b for which all m 2^b are whole numbers.
    for bits in range(_FLOAT32_BITS):
        scaled = mantissas * 2.0**bits
        if bool((scaled == scaled.round()).all()):
            return bits
    return _FLOAT32_BITS


def levels(numbers: Tensor) -> int | None:
    """Largest multiple of one step among a tensor's ``numbers (N,)``, if all are multiples of it; else None."""
    values = torch.unique(numbers.double())
    if len(values) < _FEWEST_VALUES:
        # Signs, with or without zeros, where there are many numbers; a few other values show nothing.
        if len(values) <= 3 and len(numbers) > _FEWEST_NUMBERS:
            return int((values != 0).sum() > 0)
        return None
    step = float(values.diff().min())
    if float(values.abs().max()) / step > _MOST_LEVELS:
        return None
    multiples = (values / step).round()
    # The step of least squares: the smallest difference of float32 numbers has an error of its own.
    step = float((values * multiples).sum() / multiples.square().sum())
    off_grid = float((values / step - multiples).abs().max())
    if off_grid < _OFF_GRID:
        return int(multiples.abs().max())
    return None


def _precision(tensors: Sequence[Tensor]) -> Finding | None:
    """Numbers of a type that is shorter than float32, of the first clients."""
    bits = max(significant_bits(delta[:4].float()) for delta in tensors)
    if not 0 < bits <= _FEW_BITS:
        return None
    kind = "bfloat16" if bits <= 8 else "float16"
    sentence = f"the numbers of the updates have at most {bits} significant bits, as those of {kind}; float32 has 24"
    return Finding("precision", sentence, {"significant_bits": bits})


def _quantised(tensors: Sequence[Tensor]) -> Finding | None:
    """Numbers that are multiples of one step in at least half of the tensors of the first clients."""
    counts = []
    for delta in tensors:
        few_clients = delta[:4]
        for numbers in few_clients.reshape(len(few_clients), -1):
            if bool(numbers.any()) and len(numbers) > 1:
                counts.append(levels(numbers))
    on_grid = [count for count in counts if count]
    if not on_grid or len(on_grid) < len(counts) / 2:
        return None
    # Multiples from -most to most are 2 most + 1 different numbers.
    most = max(on_grid)
    bits = math.ceil(math.log2(2 * most + 1))
    share = len(on_grid) / len(counts)
    sentence = (
        f"the updates are quantised: the numbers of {share:.0%} of the tensors are multiples of one step each, at most"
        f" {most:,} of it, which is {bits} bits a number"
    )
    return Finding("quantised", sentence, {"bits": bits, "levels": most, "share": share})


def _sparse(tensors: Sequence[Tensor]) -> Finding | None:
    """Many zeros, and a gap between them and the other numbers, as where the smallest ones were left out."""
    zeros = torch.cat([(delta == 0).reshape(len(delta), -1) for delta in tensors], dim=1).double().mean()
    if float(zeros) < _SPARSE:
        return None
    nonzero, small = 0, 0
    for delta in tensors:
        for row in delta.reshape(len(delta), -1):
            sizes = row[row != 0].abs()
            if len(sizes) > 1:
                nonzero += len(sizes)
                small += int((sizes < _SMALL * sizes.median()).sum())
    if nonzero < _FEWEST_NUMBERS or small:
        return None
    sentence = (
        f"{float(zeros):.0%} of the numbers of an update are zero, and no other one is near zero: clients send the"
        " largest numbers alone"
    )
    return Finding("sparse", sentence, {"zeros": float(zeros), "numbers": nonzero}, None)


def _errors_of_last_layer(view: RoundView) -> Finding | None:
    """Errors by what cross-entropy and plain gradient descent leave zero: the sum over classes of the last layer."""
    learner = view.algorithm
    if not isinstance(learner, ClassifierAlgorithm) or learner.local.optimizer != "sgd" or learner.local.weight_decay:
        return None
    name = f"{learner.output_layer}.weight"
    if name not in view.deltas or view.noise_scale(name):
        return None
    # Independent errors of the K classes add up to sqrt(K) times one of them.
    change = view.deltas[name].double()
    classes = change.shape[1]
    sums = change.sum(1)
    error = float(sums.square().mean().sqrt()) / math.sqrt(classes)
    size = float(change.square().mean().sqrt())
    # Changes of recorded models are rounded like the weights themselves.
    sent = view.model[name].double().abs().mean() if name in view.model else change.abs().mean()
    rounding = torch.finfo(torch.float32).eps * (float(sent) + size)
    if not _BEYOND_ROUNDING * rounding < error:
        return None
    start = (
        "the numbers of the last layer do not add up to zero over the classes, as those of cross-entropy and SGD do: "
    )
    decayed = _decayed(sums, view.model[name].double().sum(0)) if name in view.model else None
    if decayed is not None:
        sentence = f"{start}the weights shrank by {decayed:.2g} of their size, as of weight decay that is not declared"
        return Finding("decay", sentence, {"decayed": decayed})
    if error >= _LARGE * size:
        return None
    sentence = (
        f"{start}they have errors with a standard deviation of {error:.2g}, {error / size:.1%} of their size, as of"
        " noise, rounding or numbers left out, none of which is declared"
    )
    return Finding("small-noise", sentence, {"noise_scale": error, "relative": error / size})


def _decayed(sums: Tensor, weights: Tensor) -> float | None:
    """Which part of the weights the clients subtracted, by sums over classes; None if that does not explain these.

    Args:
        sums: ``(V, F)`` sums over classes of the clients' changes.
        weights: ``(F,)`` sums over classes of the weights that were sent.
    """
    # Least squares of sums = -part weights, over all clients.
    energy = weights.square().sum().clamp(min=torch.finfo(torch.float64).tiny)
    part = -float((sums @ weights).mean() / energy)
    unexplained = float((sums + part * weights).square().mean().sqrt() / sums.square().mean().sqrt())
    if part > 0 and unexplained < _UNEXPLAINED:
        return part
    return None


def _first_step(view: RoundView) -> Finding | None:
    """An adapter whose B was sent as zero, so that the gradient of A is zero."""
    # The gradient of A is B' times that of the product A B, so it is zero where B is.
    names_of_a = [name for name in view.deltas if "lora_A" in name]
    names_of_b = [name for name in view.model if "lora_B" in name]
    if not names_of_a or not names_of_b:
        return None
    if any(bool(view.model[name].any()) for name in names_of_b):
        return None
    if any(bool(view.deltas[name].any()) for name in names_of_a):
        return None
    sentence = (
        "the adapter is at its first step: its B was sent as zero, so the gradient of A is zero, and what A would show"
        " of the inputs is missing; record a later round"
    )
    return Finding("first-step", sentence, {"matrices": len(names_of_a)}, None)
