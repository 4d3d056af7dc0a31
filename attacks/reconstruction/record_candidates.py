"""Candidates for the records of an update, and which of them are certain."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.pixel_grid import common_levels

_MOST_MULTIPLE_ERROR = 3e-3
"""Largest error at which 1 and the smallest number of times of a mixture on the grid differ, which is 1.0078."""
MOST_COARSE_ERROR = 0.1
"""The same if images have few levels, so that mixtures of small shares are not on their grid."""
SAME_SCALE = 1e-3
"""Largest relative difference of equal step sizes."""
_FEWEST_OF_SCALE = 3
"""Fewest records that show a step size that is not the declared one."""

RecordErrors = Callable[[Tensor], Tensor]
"""From records ``(M, D)`` to the changes of the bias ``(M, K, N)`` that each makes as a record of each class."""


@dataclass(eq=False)
class Candidate:
    """A vector on the grid of pixels in the span of an update.

    Attributes:
        levels: ``(D,)`` uint8.
        point: ``(D + 1,)`` float64, the values as the network gets them, and a 1.
        changes: ``(K, N)`` changes of the bias by one such record of each class in the known step; None if unknown.
        sources: change of the bias, and its error, by the row that is nothing but a multiple of the vector.
        label: class, -1 if unknown.
        multiple: how many such records of that class the update has, at the known step size; NaN if unknown.
        multiple_error: bound on its relative error.
        isolated: whether its changes of the bias were found and subtracted.
        is_corner: whether no other image in the span of the rows has its black and white pixels.
        in_columns: whether its changes are known to be in the span of the columns.
        is_rarest: whether its client's update has no candidate fewer times, and three as many times.
        certain: whether it is certainly a record.
        by_levels: whether it is so only with levels that other images have too (`confirm`).
    """

    levels: Tensor
    point: Tensor
    changes: Tensor | None = None
    sources: dict[int, tuple[float, float]] = field(default_factory=dict)
    label: int = -1
    multiple: float = float("nan")
    multiple_error: float = float("inf")
    isolated: bool = False
    is_corner: bool = False
    in_columns: bool = False
    is_rarest: bool = False
    certain: bool = False
    by_levels: bool = False

    @property
    def is_counted(self) -> bool:
        """Whether it is known how many times the update has it."""
        return not math.isnan(self.multiple)


def decide(candidates: Sequence[Candidate]) -> None:
    """Says which candidates of a client are certain, from how often its update has each of them."""
    isolated = [candidate for candidate in candidates if candidate.isolated]
    for candidate in isolated:
        if math.isnan(candidate.multiple):
            candidate.certain = candidate.is_corner
            candidate.by_levels = True  # corners that are no records have fractions of few levels
    counted = [candidate for candidate in isolated if candidate.multiple_error < MOST_COARSE_ERROR]
    for candidate in counted:
        of_class = [other for other in counted if other.label == candidate.label]
        candidate.is_rarest = _is_rarest(candidate, counted) or _is_rarest(candidate, of_class)
        candidate.by_levels = candidate.multiple_error > _MOST_MULTIPLE_ERROR
    # Records that are there once are certain; if some are there less often, the step is smaller than declared, and
    # the rarest count as once instead.
    once = [candidate for candidate in counted if abs(candidate.multiple - 1) <= candidate.multiple_error]
    if once and not any(_is_less_than_once(candidate) for candidate in counted):
        for candidate in once:
            candidate.certain = True
        return
    for candidate in counted:
        candidate.certain = candidate.is_rarest
        candidate.by_levels = True


def _is_rarest(candidate: Candidate, others: Sequence[Candidate]) -> bool:
    """Whether an update has none of the others fewer times than a candidate, and three as many times."""
    if not candidate.in_columns:
        return False
    tolerance = max(SAME_SCALE, candidate.multiple_error)
    ratios = [other.multiple / candidate.multiple for other in others]
    as_many_times = sum(abs(ratio - 1) <= tolerance for ratio in ratios)
    return as_many_times >= _FEWEST_OF_SCALE and min(ratios) >= 1 - tolerance


def _is_less_than_once(candidate: Candidate) -> bool:
    """Whether an update has less than one such record, so that its step is smaller than the declared one."""
    is_known = candidate.isolated and candidate.multiple_error < MOST_COARSE_ERROR
    return is_known and candidate.multiple < 1 - MOST_COARSE_ERROR


def confirm(candidates: Sequence[Candidate], images: Tensor | None) -> None:
    """Withdraws the certainty of candidates that those of all clients together, or other images, do not confirm.

    Args:
        candidates: of all clients.
        images: ``(M, ...)`` uint8, the server's own; None for none.
    """
    certain = [candidate for candidate in candidates if candidate.certain]
    if not certain:
        return
    # Where the columns say nothing, most ratios must show one record: of another step, hardly any does by chance.
    by_neurons = [candidate for candidate in certain if candidate.is_counted and not candidate.in_columns]
    shown_by_neurons = [candidate for candidate in candidates if candidate.sources and not candidate.in_columns]
    if 2 * len(by_neurons) < len(shown_by_neurons):
        for candidate in by_neurons:
            candidate.certain = False
    # What shows a smaller step than the declared one for a client puts that of all others in doubt.
    if any(_is_less_than_once(candidate) for candidate in candidates):
        for candidate in certain:
            if candidate.is_counted:
                candidate.certain = candidate.certain and candidate.is_rarest
                candidate.by_levels = True
    # Mixtures of images lie between the levels that images have.
    allowed = common_levels(torch.stack([candidate.levels for candidate in certain]))
    if images is not None:
        allowed &= common_levels(images.flatten(1))
    for candidate in certain:
        if candidate.by_levels and not bool(allowed[candidate.levels.long()].all()):
            candidate.certain = False
