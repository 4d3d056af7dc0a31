"""Records found in the span of a linear layer's update: on the grid of pixels, and consistent with the whole update."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.linear_layer import equal_neighbours
from fedleak.attacks.reconstruction.pixel_grid import (
    LEAST_DISTANCE,
    LEVELS,
    as_levels,
    as_records,
    common_levels,
    on_grid,
)

_GAP = 0.1
"""Largest ratio of the singular value after the last of the records to that one."""
MOST_MISFIT = 0.1
"""Largest relative distance of a record's changes of the bias from the span, also where rounding allows more."""
MARGIN = 0.05
"""Share of the largest input of a neuron below whose negative a neuron is silent also after a few steps."""

_TYPICAL = 0.3
"""Standard deviation of an error that is uniform up to a bound, as a share of that bound."""
_SURE = 6.0
"""Standard deviations that an error may have."""
_ALLOWED = 4.0
"""Times its error that a ratio may be off the grid: several steps, and sums of clients, are rounded more often."""
_COMPUTED = 32.0
"""Roundings of the changes of the bias by one record, which a client computes by a forward and a backward pass."""
_LEAST_MULTIPLE_ERROR = 2e-4
"""Error to which the number of times is known at best that a record is in an update."""
_LEAST_COLUMNS_ERROR = 1e-3
"""The same where the columns agree too, so that some class hardly does by chance."""
_MOST_MULTIPLE_ERROR = 3e-3
"""Largest error at which 1 and the smallest number of times of a mixture on the grid differ, which is 1.0078."""
_MOST_COARSE_ERROR = 0.1
"""The same if images have few levels, so that mixtures of small shares are not on their grid."""
_MOST_GUESSES = 1e-2
"""Largest probability that some class fits the change of a neuron's bias by chance, if no other neuron is asked."""
_SAME_SCALE = 1e-3
"""Largest relative difference of equal step sizes."""
_FEWEST_OF_SCALE = 3
"""Fewest records that show a step size that is not the declared one."""
_FIXED = 1e-3
"""Least change of black and white pixels along each direction of the span, as a share of the length of the way."""

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


@dataclass(frozen=True)
class _Fit:
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


class RecordSpan:
    """The rows ``(N, D + 1)`` of a client's update, as sums ``M = C^T [X, 1]`` of at most a given number R of records.

    A vector x of the span of the rows is a *candidate* if it is on the grid of 8-bit pixels: of points that are none,
    a number between 0 and 255 levels lies within distance d of a whole one with probability 2d, so a vector with n such
    numbers is on the grid by chance with probability ``(2d)^n``. As d counts what the error of the numbers allows
    (`number_errors`), if that is more than what is measured.

    **A mixture of records may be on the grid too.** Where all levels of two images a and b of one class are even, so is
    ``a + b``; at the start of a training both excite a neuron about equally, whose ratio is ``(a + b) / 2`` then. So a
    candidate is certain only if the update shows how often it has this record. Write ``x = sum_i a_i x_i``, with
    ``sum_i a_i = 1``, and the changes of the bias that the clients' known step computes for x and one of the classes
    as ``u = sum_j b_j u_j`` in the changes ``u_j`` by the records. The number of times is

        ``m = 1 / ([x, 1]^T M^+ u) = 1 / sum_i a_i b_i``,

    as ``[x_i, 1]^T M^+ u_j`` is 1 for i = j and 0 else. For a record m is 1. For a mixture of records that excite the
    same neurons, u is linear in x up to the curvature of the softmax, so b is about a, and ``m = 1 / sum_i a_i^2``: 2
    for the middle of two, and at least 1.0078 for all shares from 0 to 1 that an 8-bit grid allows, as these are no
    smaller than 1/255. A neuron k whose ratio is x shows m with less error, as ``M_k,D+1 / u_k``. A record is certain
    if

    1. the ratio of a neuron is on the grid within the error of its numbers, or x is in the span of the rows;
    2. u is in the span of the columns, within the error of the numbers, for one of the classes. With as many records as
       neurons, this holds for every vector; there, and where it does not hold, a neuron with this ratio must show m = 1
       so exactly that some class would by chance with probability 0.01 only, and half of the ratios of all clients must
       do so (`confirm`);
    3. m is 1 within its error, of at most 0.003, or 0.1 if x has the levels of the other images (`common_levels`).

    A record that a client has twice has m = 2, as a mixture has, and is not certain. Not excluded are mixtures with
    negative shares and ``sum_i a_i^2 = 1``, as 2/3, 2/3 and -1/3 of images of a class whose levels are multiples of 3.
    Nor is the middle of two images of even levels where the declared step is exactly twice the true one, or a client
    reports half of its records, if no neuron of any client shows one of the images alone.

    If no record has m = 1, or one has less (updates that are clipped, sums of clients, a wrong learning rate), also one
    of another client, the smallest m counts as 1 if three records, of all or of a class, share it, and they have the
    levels of other images: those of mixtures lie between these, if a quarter of the certain ones are records.

    If no class gives changes in the span (several steps, another loss), or the algorithm is unknown, u is the only
    vector of the span of the columns that is 0 at all neurons that x does not excite, after ReLU. Its size is unknown,
    and with it m. Then x is certain only with the levels of other images, between which those of mixtures lie, and if

    4. no other image in the span of the rows has its black and white pixels. A mixture with shares from 0 to 1 is black
       or white only where all of its images are, so it never is the only one;
    5. or its ratio is known to 0.1 levels. At a neuron that two records excite, their shares would have to be those of
       a mixture on the grid to within a thousandth.

    Args:
        rows: ``(N, D + 1)`` float64.
        records: number of records of the client; of a sum of clients, the rows show more.
        bounds: ``(N, D + 1)`` bounds on the errors of the rows' numbers, which images need; None for no more than the
            precision.
        precision: relative precision in which the client computes.
        model: weight and bias ``(N, D + 1)`` of the layer.
        errors: the records' changes of the bias by class; None if unknown.
        rate: factor of a record's gradient in the update.
        several_models: whether the rows may be a sum with clients that got another model.

    References:
        Wedderburn, "Lectures on Matrices", 1934, on the rank of ``M - u x^T / (x^T M^+ u)``.
        This project, for the number of times and the conditions.
    """

    def __init__(
        self,
        rows: Tensor,
        records: int,
        *,
        bounds: Tensor | None = None,
        precision: float,
        model: Tensor,
        errors: RecordErrors | None,
        rate: float = 1.0,
        several_models: bool = False,
    ) -> None:
        self.errors, self.rate, self.model, self.precision = errors, rate, model, precision
        self.several_models = several_models
        left, values, basis = decomposed(rows)
        bounds = torch.zeros_like(rows) if bounds is None else bounds
        spread = rows.shape[0] ** 0.5 + rows.shape[1] ** 0.5  # norm of a matrix of random numbers of variance 1
        rounding = _TYPICAL * float(bounds.square().mean().sqrt()) * spread
        self.rank = _shown_rank(values, records, floor=max(4 * precision * float(values[0]), 2 * rounding))
        self.exact = self.rank > 0 and (self.rank == len(values) or _ends(values, self.rank))
        """Whether the rows are sums of so few records, and no noise."""
        self.has_columns = self.exact and self.rank < int((rows[:, -1] != 0).sum())
        """Whether the span of the columns says anything: with as many records as neurons, it holds every vector."""
        self.columns, self.basis, self.core = left[:, : self.rank], basis[: self.rank], values[: self.rank].diag()
        beyond = float(values[self.rank]) if self.rank < len(values) else 0.0
        self.deviation = max(rounding, beyond) / spread
        """Standard deviation of the numbers' errors, also of such that only the singular values show."""
        # Rounding of the rows turns the directions of the smallest singular values most.
        self.slack = max(1e-6, 30 * precision * float(values[0] / values[self.rank - 1])) if self.rank else 1.0
        self.bounds = bounds * max(1.0, self.deviation * spread / rounding) if self.exact and rounding else bounds
        self.pairs = equal_neighbours(model[:, :-1]).nonzero().flatten()
        """Neurons that measure the same as the next one; the difference of both rows may be a multiple of a record."""
        self.candidates: list[Candidate] = []
        self.core_values = values[: self.rank]
        """Singular values of the rows; the direction of the last is known worst."""
        self.left = self.rank
        """Rank of the rows without the records that were subtracted."""
        self._known: dict[bytes, Candidate] = {}
        self._decomposition: tuple[Tensor, Tensor, Tensor] | None = None

    @property
    def levels(self) -> list[Tensor]:
        return [candidate.levels for candidate in self.candidates]

    def remaining(self) -> tuple[Tensor, Tensor]:
        """Rows ``(N, D + 1)`` without the records that were subtracted, and an orthonormal basis of their span."""
        basis = self._residual()[2] @ self.basis
        return self.columns @ self.core @ self.basis, basis

    def with_differences(self, rows: Tensor, *, of_bounds: bool = False) -> Tensor:
        """``(L, ...)`` rows of the neurons, and differences of neighbours that measure the same, or bounds on these."""
        following = rows[self.pairs + 1]
        return torch.cat([rows, rows[self.pairs] + following if of_bounds else rows[self.pairs] - following])

    def ratios(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """``(L,)`` numbers of rows with differences, changes of their biases, ``(L, D)`` ratios and errors in levels.

        The errors are bounds. Only of rows whose ratio is typically known to half a level.
        """
        sums, bounds = self.with_differences(rows), self.with_differences(self.bounds, of_bounds=True)
        live = (sums[:, -1].abs() > bounds[:, -1]).nonzero().flatten()
        bias = sums[live, -1:]
        points = sums[live, :-1] / bias
        errors = LEVELS * (bounds[live, :-1] + points.abs() * bounds[live, -1:]) / bias.abs()
        clear = _TYPICAL * errors.amax(1) < 0.5
        return live[clear], bias[clear, 0], points[clear], errors[clear]

    def peel(self) -> None:
        """Takes records that alone excite a neuron, until no neuron of the rows that remain has just one.

        Of candidates whose number of times is unknown, those first that are no mixtures.
        """
        self._peel(corners=True)
        self._peel(corners=False)

    def _peel(self, *, corners: bool) -> None:
        bounds = self.with_differences(self.bounds, of_bounds=True)[:, -1]
        while self.left:
            isolated, (rows, _) = self._isolated(), self.remaining()
            numbers, biases, points, errors = self.ratios(rows)
            for place in on_grid(points, _TYPICAL * errors).nonzero().flatten().tolist():
                candidate = self._candidate(points[place])
                if candidate is None:
                    continue
                distance = LEVELS * (points[place] - candidate.point[:-1]).abs()
                if bool((distance <= (_ALLOWED * errors[place]).clamp(min=LEAST_DISTANCE)).all()):
                    number, bias = int(numbers[place]), float(biases[place])
                    candidate.sources[number] = bias, float(bounds[number]) / abs(bias)
            self._settle(corners=corners)
            if self._isolated() == isolated:
                return

    def take(self, points: Tensor) -> int:
        """Number of new candidates among points ``(M, D)``; those whose changes are found are subtracted."""
        before = len(self.candidates)
        for point in points[on_grid(points)]:
            self._candidate(point)
        self._settle(corners=True)
        self._settle(corners=False)
        return len(self.candidates) - before

    def decide(self) -> None:
        """Says which candidates are certain, from how often the update has each of them."""
        isolated = [candidate for candidate in self.candidates if candidate.isolated]
        for candidate in isolated:
            if math.isnan(candidate.multiple):
                candidate.certain = candidate.is_corner
                candidate.by_levels = True  # corners that are no records have fractions of few levels
        sure = [candidate for candidate in isolated if candidate.multiple_error < _MOST_COARSE_ERROR]
        for candidate in sure:
            own_class = [other for other in sure if other.label == candidate.label]
            candidate.is_rarest = _is_rarest(candidate, sure) or _is_rarest(candidate, own_class)
            candidate.by_levels = candidate.multiple_error > _MOST_MULTIPLE_ERROR
        if not sure:
            return
        single = [candidate for candidate in sure if abs(candidate.multiple - 1) <= candidate.multiple_error]
        if single and not any(_is_less_than_once(candidate) for candidate in sure):
            for candidate in single:
                candidate.certain = True
            return
        for candidate in sure:
            candidate.certain = candidate.is_rarest
            candidate.by_levels = True

    def _isolated(self) -> int:
        return sum(candidate.isolated for candidate in self.candidates)

    def _candidate(self, point: Tensor) -> Candidate | None:
        """The candidate next to a point ``(D,)`` near the grid; None if it is outside of the span of the rows."""
        levels = as_levels(point)
        key = levels.numpy().tobytes()
        if key in self._known:
            return self._known[key]
        records = as_records(levels)
        if self.precision >= torch.finfo(torch.float32).eps:
            records = records[1:]
        records = torch.cat([records, torch.ones(len(records), 1, dtype=torch.float64)], dim=1)
        inside = records @ self.basis.T
        misfits = (inside @ self.basis - records).norm(dim=1)
        nearest = int(misfits.argmin())
        record = records[nearest]
        dual = inside[nearest] / self.core_values
        error = _SURE * self.deviation * float(dual.norm()) * len(record) ** 0.5
        if self.exact and float(misfits[nearest]) > max(self.slack * float(record.norm()), error):
            return None
        candidate = Candidate(levels=levels, point=record)
        if self.errors is not None:
            candidate.changes = -self.rate * self.errors(record[None, :-1])[0]
        self._known[key] = candidate
        self.candidates.append(candidate)
        return candidate

    def _residual(self) -> tuple[Tensor, Tensor, Tensor]:
        """Singular value decomposition of the core without the records that were subtracted."""
        if self._decomposition is None:
            self._decomposition = decomposed(self.core)
        left, values, right = self._decomposition
        return left[:, : self.left], values[: self.left], right[: self.left]

    def _settle(self, *, corners: bool) -> None:
        """Subtracts candidates whose changes are found, those first that the update has fewest times.

        Args:
            corners: of candidates whose number of times is unknown, only those that are no mixtures.
        """
        if self.errors is not None and self.has_columns and not self._isolated() and self.left:
            with_sources = [candidate for candidate in self.candidates if candidate.sources]
            if with_sources and not any(self._fit(candidate) for candidate in with_sources):
                self.errors = None  # the clients computed something else
        while self.left:
            fits = list[tuple[_Fit, Candidate]]()
            for candidate in self.candidates:
                fit = None if candidate.isolated else self._fit(candidate)
                if fit is None or not self._is_whole(fit):
                    continue
                if math.isnan(fit.multiple):
                    candidate.is_corner = self._is_corner(candidate)
                    if corners and not candidate.is_corner:
                        continue
                fits.append((fit, candidate))
            if not fits:
                return
            fit, candidate = min(fits, key=lambda pair: math.inf if math.isnan(pair[0].multiple) else pair[0].multiple)
            self._subtract(fit, candidate)

    def _is_whole(self, fit: _Fit) -> bool:
        """Whether the update has a candidate a whole number of times as often as the rarest of its class."""
        if math.isnan(fit.multiple):
            return True
        multiples = [other.multiple for other in self.candidates if other.label == fit.label != -1]
        times = fit.multiple / min([fit.multiple, *multiples])
        return abs(times - round(times)) <= max(_SAME_SCALE, fit.multiple_error)

    def _subtract(self, fit: _Fit, candidate: Candidate) -> None:
        inside = candidate.point @ self.basis.T
        self.core = self.core - (fit.change @ self.columns)[:, None] * inside
        self._decomposition = None
        self.bounds = self.bounds + fit.change_error[:, None]
        candidate.label, candidate.multiple, candidate.multiple_error = fit.label, fit.multiple, fit.multiple_error
        candidate.isolated, candidate.in_columns = True, fit.in_columns
        if fit.in_columns:
            self.left -= 1

    def _fit(self, candidate: Candidate) -> _Fit | None:
        """A candidate's changes of the bias, None if they are unknown."""
        if self.errors is None:
            return self._silent_fit(candidate) if self.has_columns else None
        fit = self._fit_of_columns(candidate) if self.has_columns else None
        if fit is not None and abs(fit.multiple - 1) <= fit.multiple_error:
            return fit
        fit = self._fit_of_neurons(candidate) or fit
        if fit is None and self.several_models and self.has_columns and self._is_of_another_model(candidate):
            fit = self._silent_fit(candidate)
        return fit

    def _multiples(self, candidate: Candidate) -> tuple[Tensor, Tensor]:
        """``(K,)`` number of times that the sources show, as a record of each class, and its relative error."""
        assert candidate.changes is not None
        numbers = torch.tensor(list(candidate.sources))
        biases, errors = torch.tensor(list(candidate.sources.values()), dtype=torch.float64).T
        single = self.with_differences(candidate.changes.T).T[:, numbers]  # (K, S)
        computed = _COMPUTED * self.precision * candidate.changes.abs().amax(1, keepdim=True)
        multiples = biases / single
        bounds = (errors + computed / single.abs()).clamp(min=_LEAST_MULTIPLE_ERROR)
        best = bounds.argmin(1, keepdim=True)
        multiple, bound = multiples.gather(1, best), bounds.gather(1, best)
        agree = ((multiples - multiple).abs() <= (bounds + bound) * multiples.abs()).all(1)
        return multiple[:, 0].where(agree & (multiple[:, 0] > 0), torch.inf), bound[:, 0]

    def _fit_of_neurons(self, candidate: Candidate) -> _Fit | None:
        """The changes of the class of which the sources show one record."""
        if not candidate.sources:
            return None
        assert candidate.changes is not None
        multiples, bounds = self._multiples(candidate)
        label = int((multiples - 1).abs().argmin())
        multiple, bound = float(multiples[label]), float(bounds[label])
        if abs(multiple - 1) > bound or 2 * bound * len(multiples) > _MOST_GUESSES:
            return None
        change = candidate.changes[label]
        return _Fit(label, change, multiple, bound, _COMPUTED * self.precision * change.abs(), in_columns=False)

    def _fit_of_columns(self, candidate: Candidate) -> _Fit | None:
        """The changes of the class of which they are in the span of the columns."""
        assert candidate.changes is not None
        left, values, right = self._residual()
        changes = candidate.changes
        # Of each class, how far its changes are outside of the span of the columns, and how far rounding allows.
        sizes = changes.norm(dim=1)
        within = changes @ self.columns @ left  # (K, left)
        outside = (changes - within @ (self.columns @ left).T).norm(dim=1)
        duals = within / values  # of each class's changes
        tolerance = _SURE * self.deviation * duals.norm(dim=1) * len(self.columns) ** 0.5
        tolerance += _LEAST_MULTIPLE_ERROR * sizes
        fits = (outside <= tolerance.minimum(MOST_MISFIT * sizes)) & (sizes > 0)
        # The number of times, by a neuron whose ratio is the candidate if there is one, else by the whole span.
        if candidate.sources:
            multiples, bounds = self._multiples(candidate)
        else:
            inside = right @ (candidate.point @ self.basis.T)
            multiples = 1 / (duals @ inside)
            multiples = multiples.where(multiples > 0, torch.inf)
            bounds = _SURE * self.deviation * duals.norm(dim=1) * (inside / values).norm() * multiples
        measured, bounds = bounds, bounds.clamp(min=_LEAST_COLUMNS_ERROR)
        fits &= multiples.isfinite() & (bounds <= _MOST_COARSE_ERROR)
        if not bool(fits.any()):
            return None
        # A class of which the update has one record comes first, then the nearest.
        single = fits & ((multiples - 1).abs() <= bounds)
        label = int((outside / sizes).masked_fill(~(single if bool(single.any()) else fits), torch.inf).argmin())
        multiple, bound = float(multiples[label]), float(bounds[label])
        if abs(multiple - 1) <= bound:
            change, error = changes[label], _COMPUTED * self.precision  # of exactly one record
        else:
            change, error = multiple * changes[label], float(measured[label]) + _COMPUTED * self.precision
        return _Fit(label, change, multiple, bound, error * change.abs())

    def _is_of_another_model(self, candidate: Candidate) -> bool:
        """Whether the changes of no class are near the span, as those of a client that got another model are not."""
        assert candidate.changes is not None
        outside = candidate.changes - candidate.changes @ self.columns @ self.columns.T
        return bool((outside.norm(dim=1) > MOST_MISFIT * candidate.changes.norm(dim=1)).all())

    def _silent_fit(self, candidate: Candidate) -> _Fit | None:
        """The only changes in the span of the columns that are 0 where the candidate excites no neuron."""
        excitement = self.model @ candidate.point
        silent = excitement < -MARGIN * excitement.abs().max()
        if int(silent.sum()) <= self.left:
            return None
        left, values, right = self._residual()
        _, sizes, directions = decomposed(self.columns[silent] @ left)
        alone = self.left == 1 or bool(sizes[-1] < _GAP * sizes[-2])
        tolerance = max(self.slack, _SURE * self.deviation / float(values[-1]) * len(self.columns) ** 0.5)
        if not alone or float(sizes[-1]) > min(tolerance, MOST_MISFIT):
            return None
        dual = right @ (candidate.point @ self.basis.T) / values
        scale = float(dual @ directions[-1])
        # Changes by another record have scale 0.
        error = _SURE * self.deviation * float(dual.norm()) * float((directions[-1] / values).norm())
        if abs(scale) * MOST_MISFIT <= error:
            return None
        change = self.columns @ left @ directions[-1] / scale
        error = torch.full_like(change, float(sizes[-1]) / abs(scale))
        return _Fit(-1, change, float("nan"), float("inf"), error)

    def _is_corner(self, candidate: Candidate) -> bool:
        """Whether no other image of the span has all the black and white pixels of a candidate.

        A mixture of images with positive shares is black or white only where all of them are.
        """
        extreme = (candidate.levels == 0) | (candidate.levels == LEVELS)
        fixed = self.basis[:, torch.cat([extreme, torch.ones(1, dtype=torch.bool)])]
        if fixed.shape[1] < self.rank:
            return False
        error = float(_SURE * self.deviation / self.core_values[-1])
        return float(decomposed(fixed)[1][-1]) > max(_FIXED, error)


def _is_rarest(candidate: Candidate, others: Sequence[Candidate]) -> bool:
    """Whether an update has none of the others fewer times than a candidate, and three as many times."""
    if not candidate.in_columns:
        return False
    tolerance = max(_SAME_SCALE, candidate.multiple_error)
    multiples = [other.multiple / candidate.multiple for other in others]
    same = sum(abs(multiple - 1) <= tolerance for multiple in multiples)
    return same >= _FEWEST_OF_SCALE and min(multiples) >= 1 - tolerance


def _is_less_than_once(candidate: Candidate) -> bool:
    """Whether an update has less than one such record, so that its step is smaller than the declared one."""
    is_known = candidate.isolated and candidate.multiple_error < _MOST_COARSE_ERROR
    return is_known and candidate.multiple < 1 - _MOST_COARSE_ERROR


def decomposed(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Thin singular value decomposition, also of matrices for which the fast algorithm does not converge."""
    try:
        left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    except RuntimeError:
        from scipy.linalg import svd  # slow to import

        left, values, right = map(torch.from_numpy, svd(matrix.numpy(), full_matrices=False, lapack_driver="gesvd"))
    return left, values, right


def _shown_rank(values: Tensor, records: int, *, floor: float) -> int:
    """Rank of rows with given singular values: at most the number of records, but for a sum that has more, and ends.

    Args:
        values: singular values, the largest first.
        records: number of records of the client.
        floor: singular value up to which one may be rounding.
    """
    visible = int((values > floor).sum())
    rank = min(records, visible)
    is_of_more = rank < visible < len(values) and not _ends(values, rank) and _ends(values, visible)
    return visible if is_of_more else rank


def _ends(values: Tensor, rank: int) -> bool:
    """Whether the singular values after the first `rank` are small."""
    return rank < len(values) and bool(values[rank] < _GAP * values[rank - 1])


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
    single = [candidate for candidate in certain if not math.isnan(candidate.multiple) and not candidate.in_columns]
    shown = [candidate for candidate in candidates if candidate.sources and not candidate.in_columns]
    if 2 * len(single) < len(shown):
        for candidate in single:
            candidate.certain = False
    # What shows a smaller step than the declared one for a client puts that of all others in doubt.
    if any(_is_less_than_once(candidate) for candidate in candidates):
        for candidate in certain:
            if not math.isnan(candidate.multiple):
                candidate.certain = candidate.certain and candidate.is_rarest
                candidate.by_levels = True
    allowed = common_levels(torch.stack([candidate.levels for candidate in certain]))
    if images is not None:
        allowed &= common_levels(images.flatten(1))
    for candidate in certain:
        if candidate.by_levels and not bool(allowed[candidate.levels.long()].all()):
            candidate.certain = False
