"""Records of any scale, found by the neurons that each excites, and certified by the client's step made again.

Records that are no pixels have no grid by which a vector of the span is known as one, and in standardised tables no
neuron is excited by one record alone. What remains is that each record changes about half of the biases only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.record_span import MARGIN, MOST_MISFIT, Candidate, RecordErrors, RecordSpan

_POINTS, _SCALES = 256, (0.5, 3.0)
"""Random records at which the signs of the changes of the bias are looked up, and standard deviations of the first and
the last: columns of tables have outliers."""
_SMALL = 0.2
"""Changes below this share of a class's median tell no sign."""
_SCALINGS = 20
_PREFERENCE = 4
_SPARSE = 4
"""Exponent of the costs' absolute values: few neurons decide, so that records that excite many are found too."""
_ZERO = 1e-2
"""Share of the largest change below which a neuron is not excited."""
ZEROS = 4
"""Fewest neurons of the layer for each record: of a random vector of the span, one is 0 for each, of a record half."""
_TIGHT = 1.5
"""Largest ratio of changes by records of a class for which the bounds alone make vertices of single records."""
_ALONE = 0.1
"""Singular value at the neurons that a record does not excite, above which no other vector of the span is 0 there."""
_SAME = 1 - 1e-6
"""Cosine of equal changes of the bias."""
_DEPENDENT = 1e-3
"""Part of a unit vector outside of the span of others below which it is a combination of them."""
_SURE = 4.0
"""Standard errors to which a certified record is within the asked accuracy."""
_REFITS = 3
_MOST_MISSING = 2
"""Records that need not be found, as the others leave a line for them."""
_PIECES = 4
"""Pieces of that line that are tried."""


@dataclass(frozen=True)
class FoundRecords:
    """Records of one client.

    Attributes:
        records: ``(M, D)`` float64.
        classes: ``(M,)`` int64, -1 if unknown.
        certain: ``(M,)`` whether each is certainly a record of the client.
        candidates: the same of images, with what their certainty stands on.
    """

    records: Tensor
    classes: Tensor
    certain: Tensor
    candidates: Sequence[Candidate] = ()


def search_supports(
    span: RecordSpan,
    rows: Tensor,
    count: int,
    *,
    accuracy: float,
    failures: int,
    programs: int,
    generator: torch.Generator,
) -> FoundRecords:
    """All records of a client; none if the search does not find them all, or the step is another one.

    In a network with ReLU behind the layer, the changes u of the bias by a record of class y have at each neuron that
    it excites about the known sign and size f of that class (`signs`), and are 0 at the others. So ``u / f`` lies
    between 0 and a bound. The vectors of the span of the columns with this property are a polytope, in which the
    changes by single records are vertices with far more zeros than others: linear programs with random costs find
    them. All of them together are inverted, which gives the records.

    They are certain if the step, made again with the records and the inferred classes, is the update: for each record
    at all neurons, with one learning rate for all records, and as many records as the client has. The records are
    then those of least squares from the update, with a standard error; it must be small for the asked accuracy.

    What looks as several copies of a record is not certain. With two classes, all records that excite the same neurons
    change the biases in proportion, and with more classes those do whose predictions are about equal. An update has
    only the sum ``sum_i c_i x_i = c * sum_i s_i x_i`` of these, which is that of as many copies of their mean.

    Args:
        span: the span of the rows, which must be exact, with the records' changes of the bias.
        rows: ``(N, D + 1)`` the update.
        count: number of the client's records.
        accuracy: largest error of a number of a certified record.
        failures: linear programs without a new record after which the search stops.
        programs: largest number of linear programs.
        generator: of the costs.

    References:
        Dimitrov, Baader, Mueller and Vechev, "SPEAR: Exact Gradient Inversion of Batches in Federated Learning",
        NeurIPS 2024, arXiv:2403.03945, for the sparsity of the changes of the bias, which it finds by submatrices.
        This project, for the programs and the certificate by the step.
    """
    nothing = FoundRecords(rows[:0, :-1], torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.bool))
    if span.errors is None or not span.exact or span.rank >= rows.shape[1] or ZEROS * span.rank > len(rows):
        return nothing
    found, excited, failed = list[Tensor](), list[int](), 0
    sizes, bounds = signs(span.errors, rows.shape[1] - 1)
    known = torch.zeros(len(rows))
    for change in _changes(span, sizes, bounds, known, programs=programs, generator=generator):
        failed += 1
        if change is not None and all(abs(float(change @ earlier)) < _SAME for earlier in found):
            size = (span.columns @ change).abs()
            found.append(change)
            excited.append(int((size > _ZERO * size.max()).sum()))
            known += size > _ZERO * size.max()
            failed = 0
            for basis in _completed(span, _independent(found, excited)):
                inverse = torch.linalg.inv(basis.T)
                made = _certified(rows, inverse @ span.core @ span.basis, span.errors, count, span.slack, accuracy)
                if made is not None:
                    return made
        if failed >= failures:
            break
    return nothing


def _independent(changes: list[Tensor], excited: list[int]) -> Tensor:
    """``(M, R)`` those of the unit vectors that are no combination of ones that excite fewer neurons."""
    chosen, directions = list[Tensor](), list[Tensor]()
    for place in sorted(range(len(changes)), key=excited.__getitem__):
        left = changes[place]
        for direction in (*directions, *directions):  # twice, against rounding
            left = left - (left @ direction) * direction
        if float(left.norm()) > _DEPENDENT:
            chosen.append(changes[place])
            directions.append(left / left.norm())
    return torch.stack(chosen)


def _completed(span: RecordSpan, basis: Tensor) -> Iterator[Tensor]:
    """Bases ``(R, R)`` of the changes of the bias by all records, from those ``(M, R)`` of all but at most two.

    The last record is the only one of the span of the rows in which none of the others' changes takes part. The last
    two lie on a line, which the neurons' limits cut into pieces; on the pieces of the two, their changes are in the
    span of the columns. As these records are inexact, their changes follow from the neurons that are clearly silent.
    """
    missing = span.rank - len(basis)
    if missing == 0:
        yield basis
        return
    if missing > _MOST_MISSING:
        return
    outside = torch.linalg.svd(basis)[2][len(basis) :]  # (missing, R)
    others = outside @ span.core @ span.basis  # (missing, D + 1)
    turned = torch.linalg.svd(others[:, -1:])[0].T @ others  # the last number of all but the first is 0
    start, along = turned[0] / turned[0, -1], turned[1:].sum(0)  # 0 for the last record
    limits = -(span.model @ start) / (span.model @ along)
    ends = limits[torch.isfinite(limits)].sort().values
    pieces = torch.cat([ends[:1] - 1, (ends[1:] + ends[:-1]) / 2, ends[-1:] + 1])
    points = start + (pieces if len(ends) else ends.new_zeros(1))[:, None] * along
    assert span.errors is not None
    changes = span.errors(points[:, :-1])  # (L, K, N)
    misfit = (changes - changes @ span.columns @ span.columns.T).norm(dim=2) / changes.norm(dim=2).clamp(min=1e-300)
    for place in misfit.nan_to_num(nan=torch.inf).amin(1).argsort()[:_PIECES].tolist():
        excitement = span.model @ points[place]
        change = _alone(span, excitement < -MARGIN * excitement.abs().max())
        if change is not None and float((outside @ change).norm()) > _DEPENDENT:
            yield from _completed(span, torch.cat([basis, change[None]]))


def _changes(
    span: RecordSpan, sizes: Tensor, bounds: list[float], known: Tensor, *, programs: int, generator: torch.Generator
) -> Iterator[Tensor | None]:
    """Unit vectors ``(R,)`` of changes of the bias by a single record, in coordinates of the columns; None for none.

    Each is of a record that excites a drawn neuron, rather one that few of the known records excite: ``known (N,)`` is
    their number, which the caller keeps.
    """
    from scipy.optimize import linprog  # slow to import

    slack = min(max(span.slack, _ZERO / 10), _ZERO)
    sure = [own.nonzero().flatten() for own in sizes]
    scaled = [
        span.columns[rows] / own[rows, None] * own[rows].abs().median() * len(rows) ** 0.5
        for own, rows in zip(sizes, sure, strict=True)
    ]
    for number in range(programs):
        label = number % len(sizes)
        rows, most = scaled[label], bounds[label]
        if not len(rows):
            yield None
            continue
        one = int(torch.multinomial((1 + known[sure[label]]) ** -_PREFERENCE, 1, generator=generator))
        draws = torch.randn(len(rows), generator=generator).double()
        # A positive cost prefers few neurons. Where the bounds are tight, as of two classes, a cost of both signs finds
        # a vertex between them; where they are not, only that at 0 is of use.
        tight = most < _TIGHT
        cost = (draws if tight else draws.abs() ** _SPARSE) @ rows
        limits = torch.cat([torch.full((len(rows),), slack), torch.full((len(rows),), most + slack)]).double()
        solved = linprog(
            cost.numpy(),
            A_ub=torch.cat([-rows, rows] if tight else [-rows]).numpy(),
            b_ub=(limits if tight else limits[: len(rows)]).numpy(),
            A_eq=rows[one][None].numpy(),
            b_eq=[1.0],
            bounds=(None, None),
            method="highs",
        )
        yield None if solved.status else _single(span, sure[label], (rows @ torch.from_numpy(solved.x)).abs(), most)


def _single(span: RecordSpan, rows: Tensor, shares: Tensor, most: float) -> Tensor | None:
    """The one vector of the span that is 0 where a solution is about 0, if it can be a change by one record.

    Of the ``rows (L,)``, the solution's changes ``shares (L,)`` as shares of the class's are 0 or above ``1 / most``.
    """
    silent = shares < 2 * _ZERO
    return None if bool((shares[~silent] * most < 1 - 2 * _ZERO).any()) else _alone(span, rows[silent])


def _alone(span: RecordSpan, silent: Tensor) -> Tensor | None:
    """``(R,)`` the one unit vector of the span that is 0 at silent neurons; None if there is none, or are several."""
    columns = span.columns[silent]
    if len(columns) < ZEROS // 2 * span.rank:
        return None
    _, values, directions = torch.linalg.svd(columns, full_matrices=False)
    alone = span.rank == 1 or float(values[-2]) > _ALONE
    return directions[-1] if alone and float(values[-1]) <= min(span.slack, MOST_MISFIT) else None


def signs(errors: RecordErrors, width: int) -> tuple[Tensor, list[float]]:
    """Change of each bias by an excited record of each class, and how much it differs between records.

    Returns:
        ``(K, N)`` mean changes over random records, 0 where they differ in sign or are small; and for each class the
        largest ratio of a record's change at a neuron to that at another, both as shares of the mean.
    """
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(_POINTS, width, generator=generator, dtype=torch.float64)
    changes = errors(draws * torch.linspace(*_SCALES, _POINTS, dtype=torch.float64)[:, None])
    excited = changes != 0
    for _ in range(_SCALINGS):  # a record that is learnt already changes all biases less
        mean = changes.sum(0) / excited.sum(0).clamp(min=1)
        size = (changes * mean).sum(2) / (excited * mean.square()).sum(2).clamp(min=1e-300)
        changes = changes / size[..., None].where(size[..., None] > 0, 1.0)
    sure = ((changes * mean >= 0) | ~excited).all(0) & excited.any(0)
    sure &= mean.abs() > _SMALL * mean.abs().median(1, keepdim=True).values
    share = (changes / mean).masked_fill(~(excited & sure), torch.nan)
    largest, smallest = share.nan_to_num(nan=0.0).amax(2), share.nan_to_num(nan=torch.inf).amin(2)
    bounds = (largest / smallest.clamp(min=1e-3)).amax(0)
    return mean * sure, bounds.tolist()


def _certified(
    rows: Tensor, records: Tensor, errors: RecordErrors, count: int, slack: float, accuracy: float
) -> FoundRecords | None:
    """Records of multiples of ``records (R, D + 1)``, as least squares gives them, if the step gives the rows."""
    for _ in range(_REFITS):
        points = records[:, :-1] / records[:, -1:]
        if not bool(torch.isfinite(points).all()):
            return None
        changes = errors(points)
        own = torch.linalg.lstsq(torch.cat([points, torch.ones_like(points[:, :1])], 1).T, rows.T).solution  # (R, N)
        along = -torch.einsum("rkn,rn->rk", changes, own) / changes.square().sum(2).clamp(min=1e-300)
        misfit = (own[:, None] + along[..., None] * changes).norm(dim=2).masked_fill(along <= 0, torch.inf)
        misfit /= own.norm(dim=1)[:, None]
        classes = misfit.argmin(1)
        each = torch.arange(len(points))
        rate = float(along[each, classes].sum()) / count
        times = (along[each, classes] / rate).round().clamp(min=1)
        step = -rate * times[:, None] * changes[each, classes]  # (R, N)
        records = torch.linalg.lstsq(step.T, rows).solution
    points = records[:, :-1] / records[:, -1:]
    apart = (own - step).norm(dim=1) / own.norm(dim=1)
    variance = (rows - step.T @ records).square().sum() / (rows.shape[1] * (len(rows) - len(records)))
    inverse, singular = torch.linalg.inv_ex(step @ step.T)
    if singular:
        return None  # records whose changes are dependent have no least squares
    error = (variance * inverse.diagonal() * (1 + points.square().amax(1))).sqrt()
    same_step = int(times.sum()) == count and float(apart.max()) <= min(slack, MOST_MISFIT)
    if not same_step or float((records[:, -1] - 1).abs().max()) > min(slack, MOST_MISFIT):
        return None
    times = times.long()
    certain = (times == 1) & (_SURE * error <= accuracy)
    return FoundRecords(
        points.repeat_interleave(times, 0), classes.repeat_interleave(times), certain.repeat_interleave(times)
    )
