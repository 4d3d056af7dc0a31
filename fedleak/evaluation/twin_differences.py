"""In what recorded updates differ from simulated ones of the same class shares, and what may explain it."""

import dataclasses
import math
from typing import NamedTuple

import torch
from torch import Tensor

from fedleak.core.declared_noise import noise_is_refuted
from fedleak.core.likeness import Likeness, Twins
from fedleak.core.view import RoundView

_TWIN_FACTOR = 1.25
"""The same for clients of the same class shares, in addition to how much simulated clients differ."""
_TURNED = 0.05
"""How much smaller a cosine may be than those of simulated clients."""
_LESS_ALIKE = 0.5
"""By which part of what simulated cosines lack of 1 it may be smaller in addition: clients' images are others."""
_TENSOR_FACTOR = 2.0
"""Ratio by which a tensor may be longer or shorter than the whole update is, in addition."""
_OFF = 0.05
"""Mean squared distance of counts from whole numbers that refutes a learner."""
_OFF_SIMULATED = 0.025
"""The same of simulated clients, below which theirs are whole numbers."""
_FEW = 0.5
"""Share of repeated values above which numbers are rounded; part of the model above which updates are weights."""
_MODEL = 0.01
"""Part of the global model that updates may have in them, e.g. by the last digits of float16."""
_ZEROS = 0.3
"""Share of zeros, more than in simulated updates, from which on only a part was sent."""
_MIRRORED = 0.5
"""1 minus the cosine of negated updates and their twins over that of the updates, below which the sign is wrong."""
_EQUAL_LENGTHS = 1e-3
"""Relative spread of the clients' lengths below which they were clipped."""


@dataclasses.dataclass(frozen=True)
class TwinDifferences:
    """In what updates differ from those of simulated clients with the same class shares.

    Attributes:
        longer: binary logarithm of how many times as long the updates are, 0 for no difference.
        turned: whether they have another direction.
        uneven: tensors that are longer or shorter by another factor than the whole update.
        model: how many times they have the model itself in them, 0 for no difference.
        zeros: share of their numbers that are 0 though the learner's are not; 0 for no difference.
        broken: whether class counts are no whole numbers.
    """

    longer: float
    turned: bool
    uneven: tuple[str, ...]
    model: float
    zeros: float
    broken: bool

    @classmethod
    def of(cls, likeness: Likeness, expected: Likeness) -> "TwinDifferences":
        length = _Shift.of(likeness.length, expected.length)
        # A tensor is uneven if it differs by another factor than the whole update does.
        factor = math.log2(_TENSOR_FACTOR)
        uneven = []
        for name in expected.tensors:
            if name in likeness.tensors:
                shift = _Shift.of(likeness.tensors[name], expected.tensors[name])
                if shift.is_beyond(factor, length.middle):
                    uneven.append(name)
        model = _Shift.of(likeness.model, expected.model)
        zeros = _Shift.of(likeness.zeros, expected.zeros)
        # Counts are whole numbers behind simulated updates, and must be so behind the recorded ones.
        off = float(likeness.off_whole.nanmean())
        off_simulated = float(expected.off_whole.nanmean())
        return cls(
            # The shift is that of simulated over recorded lengths, so recorded ones are longer where it is negative.
            longer=-length.beyond(math.log2(_TWIN_FACTOR)),
            turned=_is_turned(likeness, expected),
            uneven=tuple(uneven),
            model=model.beyond(_MODEL),
            zeros=zeros.beyond(_ZEROS),
            broken=off > _OFF and off_simulated < _OFF_SIMULATED,
        )

    @property
    def sentence(self) -> str:
        """The differences in words, empty for none."""
        parts = []
        if self.longer:
            parts.append(f"the updates are {times_in_words(self.longer)} than the learner makes them")
        if self.turned:
            parts.append("the updates point elsewhere than the learner's")
        if self.uneven:
            parts.append(f"tensors disagree about the length ({', '.join(self.uneven[:3])})")
        if self.model:
            parts.append(f"the updates have the model itself in them ({self.model:.2g} times)")
        if self.zeros:
            parts.append(f"{self.zeros:.0%} of the numbers that should have changed are 0")
        if self.broken:
            parts.append("the class counts behind the updates are no whole numbers")
        return ", and ".join(parts)


def times_in_words(binary_logarithm: float) -> str:
    """How many times longer or shorter, from the binary logarithm of a ratio of lengths."""
    kind = "longer" if binary_logarithm > 0 else "shorter"
    return f"{2 ** abs(binary_logarithm):.2g} times {kind}"


class _Shift(NamedTuple):
    """By how much a number of recorded clients differs from that of simulated clients with the same class shares.

    ``middle`` is the median difference of a client from the mean of its simulated ones; ``spread`` is the largest
    difference of a simulated client from the mean of the others.
    """

    middle: float
    spread: float

    @classmethod
    def of(cls, recorded: Tensor, simulated: Tensor) -> "_Shift":
        """Compares numbers ``(V,)`` of recorded clients with those of simulated ones ``(R, V)``."""
        """Compares numbers ``(V,)`` of recorded clients with those of simulated ones ``(R, V)``."""
        # Each simulated client against the mean of the other R - 1: what chance alone makes of a difference.
        mean_of_others = (simulated.sum(0) - simulated) / (len(simulated) - 1)
        spread = float((simulated - mean_of_others).abs().max())
        middle = float((recorded - simulated.mean(0)).median())
        return cls(middle, spread)

    def beyond(self, tolerance: float) -> float:
        """The difference, 0 for one that `is_beyond` does not count."""
        if self.is_beyond(tolerance):
            return self.middle
        return 0.0

    def is_beyond(self, tolerance: float, usual: float = 0.0) -> bool:
        """Whether the difference, from a usual one, is more than what is tolerated and what simulated clients show."""
        return abs(self.middle - usual) > tolerance + self.spread


def _is_turned(likeness: Likeness, expected: Likeness) -> bool:
    """Whether updates are less like their twins than simulated ones are."""
    cosine = _Shift.of(likeness.cosine, expected.cosine)
    # The more simulated clients' cosines lack of 1, the more those of other images may.
    tolerance = _TURNED + _LESS_ALIKE * (1 - float(expected.cosine.median()))
    return -cosine.middle > max(tolerance, cosine.spread)


def next_to_try(
    view: RoundView, twins: Twins, differences: TwinDifferences, likeness: Likeness, expected: Likeness
) -> str:
    """What may explain updates that differ from simulated ones, the most specific first."""
    # A wrong sign: the negated updates are much closer to their twins.
    negated = {name: -value for name, value in view.deltas.items()}
    mirrored = twins.likeness(negated).cosine
    if 1 - float(mirrored.median()) < _MIRRORED * (1 - float(likeness.cosine.median())):
        return "they point against the simulated ones, so record local minus global, not global minus local"
    what_is_sent = _what_is_sent(view, differences, expected)
    if what_is_sent:
        return what_is_sent
    if differences.model and not differences.longer:
        return "check the weight decay"
    if differences.turned:
        return (
            "check the optimizer, the batch size, clips of gradients, and the loss, which may be another than"
            " cross-entropy; noise, or examples unlike the server's, turn updates too"
        )
    if differences.uneven:
        return "bias and weights disagree: check the loss, class weights, the optimizer, and clips for each tensor"
    if differences.longer:
        return (
            "they point where the learner points, so check the learning rate, the number of steps (epochs, batch size,"
            " numbers of examples), clips, the loss, terms that hold clients back (FedProx), and sums of several"
            " clients"
        )
    return "check the numbers of examples, class weights, label smoothing and the learning rate"


def _what_is_sent(view: RoundView, differences: TwinDifferences, expected: Likeness) -> str:
    """What clients may have sent instead of the change of their weights; empty for nothing."""
    if noise_is_refuted(view):
        return "they are too short to hold the declared noise, so check what is declared"
    if differences.model > _FEW:
        return "these are weights, so record them as weights, or subtract the model"
    if _takes_few_values(view):
        return "they take few values, so clients may send signs, rounded numbers, or a single step of Adam"
    if differences.zeros:
        return "clients may send only the largest"
    # A clip makes all recorded updates equally long, although simulated ones are not.
    updates = torch.cat([value.double().reshape(view.victims, -1) for value in view.deltas.values()], dim=1)
    lengths = updates.norm(dim=1)
    if len(lengths) > 2 and float(lengths.std() / lengths.mean()) < _EQUAL_LENGTHS < float(expected.length.std()):
        return f"all are {float(lengths.mean()):.3g} long, so clients may clip them: declare the clip"
    return ""


def _takes_few_values(view: RoundView) -> bool:
    """Whether the numbers of the largest tensor, without zeros, are mostly repetitions of the same absolute values."""
    largest = max(view.deltas.values(), key=lambda value: value[0].numel())
    distinct = numbers = 0
    for update in largest.reshape(len(largest), -1):
        sizes = update[update != 0].abs()
        distinct += len(torch.unique(sizes))
        numbers += len(sizes)
    return distinct < (1 - _FEW) * numbers
