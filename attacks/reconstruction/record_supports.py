"""Records of any scale, found by the neurons that each excites, and certified by the client's step made again.

Records that are no pixels have no grid by which a vector of the span is known as one, and in standardised tables no
neuron is excited by one record alone. What remains is that each record changes about half of the biases only.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.found_records import FoundRecords
from fedleak.attacks.reconstruction.record_candidates import RecordErrors
from fedleak.attacks.reconstruction.record_fit import MARGIN, MOST_MISFIT
from fedleak.attacks.reconstruction.record_span import RecordSpan
from fedleak.attacks.reconstruction.sparse_changes import ZERO, ZEROS, signs, silent_change, sparse_changes

_SAME = 1 - 1e-6
"""Cosine of equal changes of the bias."""
_DEPENDENT = 1e-3
"""Part of a unit vector outside of the span of others below which it is a combination of them."""
_SURE = 4.0
"""Standard errors to which a certified record is within the asked accuracy."""
_REFITS = 3
"""Passes in which records give their changes of the bias, and these the records by least squares."""
_MOST_MISSING = 2
"""Records that need not be found, as the others leave a line for them."""
_PIECES = 4
"""Pieces of that line that are tried."""


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
        [Dimitrov24], for the sparsity of the changes of the bias, which it finds by submatrices.
        This project, for the programs and the certificate by the step.
    """
    nothing = FoundRecords(rows[:0, :-1], torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.bool))
    if span.errors is None or not span.exact or span.rank >= rows.shape[1] or ZEROS * span.rank > len(rows):
        return nothing
    mean_changes, bounds = signs(span.errors, rows.shape[1] - 1)
    changes, excited_neurons = list[Tensor](), list[int]()
    times_excited = torch.zeros(len(rows))  # of each neuron, by the changes found; `sparse_changes` reads it
    failed = 0
    candidates = sparse_changes(span, mean_changes, bounds, times_excited, programs=programs, generator=generator)
    for change in candidates:
        failed += 1
        if change is not None and all(abs(float(change @ earlier)) < _SAME for earlier in changes):
            size = (span.columns @ change).abs()
            is_excited = size > ZERO * size.max()
            changes.append(change)
            excited_neurons.append(int(is_excited.sum()))
            times_excited += is_excited
            failed = 0
            for basis in _completed(span, _independent(changes, excited_neurons)):
                # M = C^T [X, 1] with columns C = basis^T in the coordinates of the core.
                inverse = torch.linalg.inv(basis.T)
                records = inverse @ span.core @ span.basis
                certified = _certified(rows, records, span.errors, count, span.slack, accuracy)
                if certified is not None:
                    return certified
        if failed >= failures:
            break
    return nothing


def _independent(changes: list[Tensor], excited: list[int]) -> Tensor:
    """``(M, R)`` those of the unit vectors that are no combination of ones that excite fewer neurons."""
    chosen, directions = list[Tensor](), list[Tensor]()
    for number in sorted(range(len(changes)), key=excited.__getitem__):
        # Gram-Schmidt: what is outside of the span of those chosen before.
        outside = changes[number]
        for direction in (*directions, *directions):  # twice, against rounding
            outside = outside - (outside @ direction) * direction
        if float(outside.norm()) > _DEPENDENT:
            chosen.append(changes[number])
            directions.append(outside / outside.norm())
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
    missing_records = outside @ span.core @ span.basis  # (missing, D + 1), up to a mixture
    # Turned so that the last number of all but the first is 0, which makes them directions.
    turned = torch.linalg.svd(missing_records[:, -1:])[0].T @ missing_records
    start = turned[0] / turned[0, -1]
    along = turned[1:].sum(0)  # 0 for the last record
    # Where on the line each neuron begins or ends to be excited; between these ends, the same neurons are excited.
    limits = -(span.model @ start) / (span.model @ along)
    ends = limits[torch.isfinite(limits)].sort().values
    positions = ends.new_zeros(1)
    if len(ends):
        positions = torch.cat([ends[:1] - 1, (ends[1:] + ends[:-1]) / 2, ends[-1:] + 1])
    points = start + positions[:, None] * along
    # The pieces of the two records are those where the changes of some class are nearest to the span of the columns.
    assert span.errors is not None
    changes = span.errors(points[:, :-1])  # (L, K, N)
    misfit = (changes - changes @ span.columns @ span.columns.T).norm(dim=2) / changes.norm(dim=2).clamp(min=1e-300)
    for piece in misfit.nan_to_num(nan=torch.inf).amin(1).argsort()[:_PIECES].tolist():
        excitement = span.model @ points[piece]
        change = silent_change(span, excitement < -MARGIN * excitement.abs().max())
        if change is not None and float((outside @ change).norm()) > _DEPENDENT:
            yield from _completed(span, torch.cat([basis, change[None]]))


def _certified(
    rows: Tensor, records: Tensor, errors: RecordErrors, count: int, slack: float, accuracy: float
) -> FoundRecords | None:
    """Records of multiples of ``records (R, D + 1)``, as least squares gives them, if the step gives the rows."""
    for _ in range(_REFITS):
        points = records[:, :-1] / records[:, -1:]
        if not bool(torch.isfinite(points).all()):
            return None
        changes = errors(points)
        with_one = torch.cat([points, torch.ones_like(points[:, :1])], 1)
        # The changes of the bias by each record that the rows show, and the multiples of each class's that fit them.
        shown = torch.linalg.lstsq(with_one.T, rows.T).solution  # (R, N)
        multiples = -torch.einsum("rkn,rn->rk", changes, shown) / changes.square().sum(2).clamp(min=1e-300)
        misfit = (shown[:, None] + multiples[..., None] * changes).norm(dim=2).masked_fill(multiples <= 0, torch.inf)
        misfit /= shown.norm(dim=1)[:, None]
        classes = misfit.argmin(1)
        each = torch.arange(len(points))
        # All records have one rate, so that the multiples are whole numbers of it which add up to the count.
        multiple = multiples[each, classes]
        rate = float(multiple.sum()) / count
        times = (multiple / rate).round().clamp(min=1)
        step = -rate * times[:, None] * changes[each, classes]  # (R, N)
        records = torch.linalg.lstsq(step.T, rows).solution
    points = records[:, :-1] / records[:, -1:]
    misfits = (shown - step).norm(dim=1) / shown.norm(dim=1)
    # Standard error of a quotient of least squares: residual variance times (S S^T)^-1, and the error of the 1.
    variance = (rows - step.T @ records).square().sum() / (rows.shape[1] * (len(rows) - len(records)))
    inverse, is_singular = torch.linalg.inv_ex(step @ step.T)
    if is_singular:
        return None  # records whose changes are dependent have no least squares
    error = (variance * inverse.diagonal() * (1 + points.square().amax(1))).sqrt()
    tolerance = min(slack, MOST_MISFIT)
    is_same_step = int(times.sum()) == count and float(misfits.max()) <= tolerance
    if not is_same_step or float((records[:, -1] - 1).abs().max()) > tolerance:
        return None
    times = times.long()
    is_certain = (times == 1) & (_SURE * error <= accuracy)
    return FoundRecords(
        records=points.repeat_interleave(times, 0),
        classes=classes.repeat_interleave(times),
        certain=is_certain.repeat_interleave(times),
    )
