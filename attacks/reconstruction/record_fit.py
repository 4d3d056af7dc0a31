"""What a candidate changes at all neurons, and how many times the update has it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.pixel_grid import LEVELS
from fedleak.attacks.reconstruction.record_candidates import MOST_COARSE_ERROR, Candidate
from fedleak.attacks.reconstruction.row_span import GAP, SURE, RowSpan, decomposed

MOST_MISFIT = 0.1
"""Largest relative distance of a record's changes of the bias from the span, also where rounding allows more."""
MARGIN = 0.05
"""Share of the largest input of a neuron below whose negative a neuron is silent also after a few steps."""
_COMPUTED = 32.0
"""Roundings of the changes of the bias by one record, which a client computes by a forward and a backward pass."""
_LEAST_MULTIPLE_ERROR = 2e-4
"""Error to which the number of times is known at best that a record is in an update."""
_LEAST_COLUMNS_ERROR = 1e-3
"""The same where the columns agree too, so that some class hardly does by chance."""
_MOST_GUESSES = 1e-2
"""Largest probability that some class fits the change of a neuron's bias by chance, if no other neuron is asked."""
_FIXED = 1e-3
"""Least change of black and white pixels along each direction of the span, as a share of the length of the way."""


@dataclass(frozen=True)
class RecordFit:
    """A candidate's changes of the bias.

    Attributes:
        label: class, -1 if unknown.
        change: ``(N,)`` changes of the bias by all such records.
        multiple: see `Candidate`.
        multiple_error: see `Candidate`.
        change_error: ``(N,)`` bounds on the errors of ``change``.
        in_columns: whether they are known to be in the span of the columns.
    """

    label: int
    change: Tensor
    multiple: float
    multiple_error: float
    change_error: Tensor
    in_columns: bool = True


def fit_of_neurons(span: RowSpan, candidate: Candidate) -> RecordFit | None:
    """The changes of the class of which the sources show one record."""
    if not candidate.sources:
        return None
    assert candidate.changes is not None
    multiples, bounds = _multiples(span, candidate)
    label = int((multiples - 1).abs().argmin())
    multiple = float(multiples[label])
    bound = float(bounds[label])
    # A number within the bound b of 1 is so by chance with a probability of 2 b, for each of the classes.
    if abs(multiple - 1) > bound or 2 * bound * len(multiples) > _MOST_GUESSES:
        return None
    change = candidate.changes[label]
    return RecordFit(
        label=label,
        change=change,
        multiple=multiple,
        multiple_error=bound,
        change_error=_COMPUTED * span.precision * change.abs(),
        in_columns=False,
    )


def fit_of_columns(span: RowSpan, candidate: Candidate) -> RecordFit | None:
    """The changes of the class of which they are in the span of the columns."""
    assert candidate.changes is not None
    left_vectors, values, right_vectors = span.residual()
    changes = candidate.changes
    # Of each class, how far its changes are outside of the span of the columns, and how far rounding allows.
    sizes = changes.norm(dim=1)
    within = changes @ span.columns @ left_vectors  # (K, left)
    outside = (changes - within @ (span.columns @ left_vectors).T).norm(dim=1)
    duals = within / values  # of each class's changes
    tolerance = SURE * span.deviation * duals.norm(dim=1) * len(span.columns) ** 0.5
    tolerance += _LEAST_MULTIPLE_ERROR * sizes
    is_inside = (outside <= tolerance.minimum(MOST_MISFIT * sizes)) & (sizes > 0)
    # The number of times, by a neuron whose ratio is the candidate if there is one, else by the whole span.
    if candidate.sources:
        multiples, measured_bounds = _multiples(span, candidate)
    else:
        # m = 1 / ([x, 1]^T M^+ u)
        coordinates = right_vectors @ span.coordinates(candidate.point)
        multiples = 1 / (duals @ coordinates)
        multiples = multiples.where(multiples > 0, torch.inf)
        dual_of_point = (coordinates / values).norm()
        measured_bounds = SURE * span.deviation * duals.norm(dim=1) * dual_of_point * multiples
    bounds = measured_bounds.clamp(min=_LEAST_COLUMNS_ERROR)
    is_inside &= multiples.isfinite() & (bounds <= MOST_COARSE_ERROR)
    if not bool(is_inside.any()):
        return None
    # A class of which the update has one record comes first, then the nearest.
    is_once = is_inside & ((multiples - 1).abs() <= bounds)
    considered = is_once if bool(is_once.any()) else is_inside
    label = int((outside / sizes).masked_fill(~considered, torch.inf).argmin())
    multiple = float(multiples[label])
    bound = float(bounds[label])
    change = changes[label]
    error = _COMPUTED * span.precision  # of exactly one record
    if abs(multiple - 1) > bound:
        change = multiple * change
        error = float(measured_bounds[label]) + error
    return RecordFit(
        label=label, change=change, multiple=multiple, multiple_error=bound, change_error=error * change.abs()
    )


def silent_fit(span: RowSpan, candidate: Candidate) -> RecordFit | None:
    """The only changes in the span of the columns that are 0 where the candidate excites no neuron."""
    excitement = span.model @ candidate.point
    is_silent = excitement < -MARGIN * excitement.abs().max()
    if int(is_silent.sum()) <= span.left:
        return None
    left_vectors, values, right_vectors = span.residual()
    # The direction of the smallest singular value of the columns at the silent neurons, if no other one is as small.
    _, sizes, directions = decomposed(span.columns[is_silent] @ left_vectors)
    is_only = span.left == 1 or bool(sizes[-1] < GAP * sizes[-2])
    tolerance = max(span.slack, SURE * span.deviation / float(values[-1]) * len(span.columns) ** 0.5)
    if not is_only or float(sizes[-1]) > min(tolerance, MOST_MISFIT):
        return None
    # Wedderburn: subtracting u x^T lowers the rank if x^T M^+ u = 1, which gives the size of u.
    dual = right_vectors @ span.coordinates(candidate.point) / values
    scale = float(dual @ directions[-1])
    # Changes by another record have scale 0.
    scale_error = SURE * span.deviation * float(dual.norm()) * float((directions[-1] / values).norm())
    if abs(scale) * MOST_MISFIT <= scale_error:
        return None
    change = span.columns @ left_vectors @ directions[-1] / scale
    return RecordFit(
        label=-1,
        change=change,
        multiple=float("nan"),
        multiple_error=float("inf"),
        change_error=torch.full_like(change, float(sizes[-1]) / abs(scale)),
    )


def is_of_another_model(span: RowSpan, candidate: Candidate) -> bool:
    """Whether the changes of no class are near the span, as those of a client that got another model are not."""
    assert candidate.changes is not None
    outside = candidate.changes - candidate.changes @ span.columns @ span.columns.T
    return bool((outside.norm(dim=1) > MOST_MISFIT * candidate.changes.norm(dim=1)).all())


def is_corner(span: RowSpan, candidate: Candidate) -> bool:
    """Whether no other image of the span has all the black and white pixels of a candidate.

    A mixture of images with positive shares is black or white only where all of them are.
    """
    is_extreme = (candidate.levels == 0) | (candidate.levels == LEVELS)
    # Directions of the span that change none of these pixels, nor the 1, lead to other such images.
    fixed = span.basis[:, torch.cat([is_extreme, torch.ones(1, dtype=torch.bool)])]
    if fixed.shape[1] < span.rank:
        return False
    error = float(SURE * span.deviation / span.core_values[-1])
    return float(decomposed(fixed)[1][-1]) > max(_FIXED, error)


def _multiples(span: RowSpan, candidate: Candidate) -> tuple[Tensor, Tensor]:
    """``(K,)`` number of times that the sources show, as a record of each class, and its relative error."""
    assert candidate.changes is not None
    numbers = torch.tensor(list(candidate.sources))
    biases, errors = torch.tensor(list(candidate.sources.values()), dtype=torch.float64).T
    by_one_record = span.with_differences(candidate.changes.T).T[:, numbers]  # (K, S)
    rounding = _COMPUTED * span.precision * candidate.changes.abs().amax(1, keepdim=True)
    multiples = biases / by_one_record
    bounds = (errors + rounding / by_one_record.abs()).clamp(min=_LEAST_MULTIPLE_ERROR)
    # The source that is known best, with which all others must agree.
    best = bounds.argmin(1, keepdim=True)
    multiple = multiples.gather(1, best)
    bound = bounds.gather(1, best)
    do_agree = ((multiples - multiple).abs() <= (bounds + bound) * multiples.abs()).all(1)
    return multiple[:, 0].where(do_agree & (multiple[:, 0] > 0), torch.inf), bound[:, 0]
