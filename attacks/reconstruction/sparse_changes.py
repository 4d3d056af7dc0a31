"""Changes of the bias by single records, as vectors that are zero at many neurons."""

from collections.abc import Iterator

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.record_candidates import RecordErrors
from fedleak.attacks.reconstruction.record_fit import MOST_MISFIT
from fedleak.attacks.reconstruction.row_span import RowSpan

_POINTS = 256
"""Random records at which the signs of the changes of the bias are looked up."""
_SCALES = (0.5, 3.0)
"""Standard deviations of the first and the last of these: columns of tables have outliers."""
_SMALL = 0.2
"""Changes below this share of a class's median tell no sign."""
_SCALINGS = 20
"""Passes in which random records are brought to one size, and their mean is computed again."""
_PREFERENCE = 4
"""Exponent by which neurons that known records excite are drawn less often."""
_SPARSE = 4
"""Exponent of the costs' absolute values: few neurons decide, so that records that excite many are found too."""
ZERO = 1e-2
"""Share of the largest change below which a neuron is not excited."""
ZEROS = 4
"""Fewest neurons of the layer for each record: of a random vector of the span, one is 0 for each, of a record half."""
_TIGHT = 1.5
"""Largest ratio of changes by records of a class for which the bounds alone make vertices of single records."""
_ALONE = 0.1
"""Singular value at the neurons that a record does not excite, above which no other vector of the span is 0 there."""


def signs(errors: RecordErrors, width: int) -> tuple[Tensor, list[float]]:
    """Change of each bias by an excited record of each class, and how much it differs between records.

    Returns:
        ``(K, N)`` mean changes over random records, 0 where they differ in sign or are small; and for each class the
        largest ratio of a record's change at a neuron to that at another, both as shares of the mean.
    """
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(_POINTS, width, generator=generator, dtype=torch.float64)
    scales = torch.linspace(*_SCALES, _POINTS, dtype=torch.float64)
    changes = errors(draws * scales[:, None])  # (M, K, N)
    is_excited = changes != 0
    times_excited = is_excited.sum(0).clamp(min=1)
    for _ in range(_SCALINGS):  # a record that is learnt already changes all biases less
        mean = changes.sum(0) / times_excited
        # Of each record, the factor at which the mean fits its changes in least squares.
        mean_square = (is_excited * mean.square()).sum(2).clamp(min=1e-300)
        size = ((changes * mean).sum(2) / mean_square)[..., None]
        changes = changes / size.where(size > 0, 1.0)
    # The sign is known where all excited records agree with the mean, and it is not small.
    do_agree = ((changes * mean >= 0) | ~is_excited).all(0)
    is_large = mean.abs() > _SMALL * mean.abs().median(1, keepdim=True).values
    has_sign = do_agree & is_excited.any(0) & is_large
    share = (changes / mean).masked_fill(~(is_excited & has_sign), torch.nan)
    largest = share.nan_to_num(nan=0.0).amax(2)
    smallest = share.nan_to_num(nan=torch.inf).amin(2)
    bounds = (largest / smallest.clamp(min=1e-3)).amax(0)
    return mean * has_sign, bounds.tolist()


def sparse_changes(
    span: RowSpan,
    mean_changes: Tensor,
    bounds: list[float],
    times_excited: Tensor,
    *,
    programs: int,
    generator: torch.Generator,
) -> Iterator[Tensor | None]:
    """Unit vectors ``(R,)`` of changes of the bias by a single record, in coordinates of the columns; None for none.

    Each is of a record that excites a drawn neuron, rather one that few of the known records excite: their number is
    ``times_excited (N,)``, which the caller keeps.
    """
    slack = min(max(span.slack, ZERO / 10), ZERO)
    # Of each class, the neurons whose sign is known, and the columns at them as shares of the class's mean change.
    neurons_of, shares_of = list[Tensor](), list[Tensor]()
    for mean_change in mean_changes:
        neurons = mean_change.nonzero().flatten()
        sizes = mean_change[neurons]
        neurons_of.append(neurons)
        shares_of.append(span.columns[neurons] / sizes[:, None] * sizes.abs().median() * len(neurons) ** 0.5)
    for number in range(programs):
        label = number % len(mean_changes)
        neurons = neurons_of[label]
        shares = shares_of[label]
        most = bounds[label]
        if not len(neurons):
            yield None
            continue
        weights = (1 + times_excited[neurons]) ** -_PREFERENCE
        drawn = int(torch.multinomial(weights, 1, generator=generator))
        draws = torch.randn(len(neurons), generator=generator).double()
        solution = _vertex(shares, drawn, draws, most=most, slack=slack)
        if solution is None:
            yield None
        else:
            yield _single(span, neurons, (shares @ solution).abs(), most)


def _vertex(shares: Tensor, drawn: int, draws: Tensor, *, most: float, slack: float) -> Tensor | None:
    """``(R,)`` vector of the columns' span of least random cost, that has the share 1 at a drawn neuron; None for none.

    Args:
        shares: ``(L, R)`` columns at the neurons, as shares of a class's change; all of a vector are to be 0 or more.
        drawn: the neuron.
        draws: ``(L,)`` random numbers for the costs.
        most: largest share of a record.
        slack: error of the shares.
    """
    from scipy.optimize import linprog  # slow to import

    # A positive cost prefers few neurons. Where the bounds are tight, as of two classes, a cost of both signs finds a
    # vertex between them; where they are not, only that at 0 is of use.
    lowest = torch.full((len(shares),), slack).double()
    highest = torch.full((len(shares),), most + slack).double()
    if most < _TIGHT:
        cost = draws @ shares
        inequalities = torch.cat([-shares, shares])
        limits = torch.cat([lowest, highest])
    else:
        cost = draws.abs() ** _SPARSE @ shares
        inequalities = -shares
        limits = lowest
    solution = linprog(
        cost.numpy(),
        A_ub=inequalities.numpy(),
        b_ub=limits.numpy(),
        A_eq=shares[drawn][None].numpy(),
        b_eq=[1.0],
        bounds=(None, None),
        method="highs",
    )
    return None if solution.status else torch.from_numpy(solution.x)


def _single(span: RowSpan, neurons: Tensor, shares: Tensor, most: float) -> Tensor | None:
    """The one vector of the span that is 0 where a solution is about 0, if it can be a change by one record.

    Of the ``neurons (L,)``, the solution's changes ``shares (L,)`` as shares of the class's are 0 or above
    ``1 / most``.
    """
    is_silent = shares < 2 * ZERO
    if bool((shares[~is_silent] * most < 1 - 2 * ZERO).any()):
        return None
    return silent_change(span, neurons[is_silent])


def silent_change(span: RowSpan, silent: Tensor) -> Tensor | None:
    """``(R,)`` the one unit vector of the span that is 0 at silent neurons; None if there is none, or are several."""
    columns = span.columns[silent]
    if len(columns) < ZEROS // 2 * span.rank:
        return None
    _, values, directions = torch.linalg.svd(columns, full_matrices=False)
    is_only = span.rank == 1 or float(values[-2]) > _ALONE
    is_zero = float(values[-1]) <= min(span.slack, MOST_MISFIT)
    return directions[-1] if is_only and is_zero else None
