"""Records found in the span of a linear layer's update: on the grid of pixels, and consistent with the whole update."""

import math

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.pixel_grid import LEAST_DISTANCE, LEVELS, as_levels, as_records, on_grid
from fedleak.attacks.reconstruction.record_candidates import SAME_SCALE, Candidate, RecordErrors, decide
from fedleak.attacks.reconstruction.record_fit import (
    RecordFit,
    fit_of_columns,
    fit_of_neurons,
    is_corner,
    is_of_another_model,
    silent_fit,
)
from fedleak.attacks.reconstruction.row_span import SURE, TYPICAL, RowSpan

_ALLOWED = 4.0
"""Times its error that a ratio may be off the grid: several steps, and sums of clients, are rounded more often."""


class RecordSpan(RowSpan):
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
        [Wedderburn34], on the rank of ``M - u x^T / (x^T M^+ u)``.
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
        super().__init__(rows, records, bounds=bounds, precision=precision, model=model)
        self.errors = errors
        self.rate = rate
        self.several_models = several_models
        self.candidates: list[Candidate] = []
        self._candidate_of: dict[bytes, Candidate] = {}

    @property
    def levels(self) -> list[Tensor]:
        return [candidate.levels for candidate in self.candidates]

    def peel(self) -> None:
        """Takes records that alone excite a neuron, until no neuron of the rows that remain has just one.

        Of candidates whose number of times is unknown, those first that are no mixtures.
        """
        self._peel(corners=True)
        self._peel(corners=False)

    def _peel(self, *, corners: bool) -> None:
        bounds = self.bounds_with_differences()[:, -1]
        while self.left:
            isolated_before = self._isolated()
            rows, _ = self.remaining()
            numbers, biases, points, errors = self.ratios(rows)
            for row in on_grid(points, TYPICAL * errors).nonzero().flatten().tolist():
                candidate = self._candidate(points[row])
                if candidate is None:
                    continue
                # A row whose ratio is the candidate within its error is a source: nothing but a multiple of it.
                distance = LEVELS * (points[row] - candidate.point[:-1]).abs()
                if bool((distance <= (_ALLOWED * errors[row]).clamp(min=LEAST_DISTANCE)).all()):
                    number = int(numbers[row])
                    bias = float(biases[row])
                    candidate.sources[number] = bias, float(bounds[number]) / abs(bias)
            self._settle(corners=corners)
            if self._isolated() == isolated_before:
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
        decide(self.candidates)

    def _isolated(self) -> int:
        return sum(candidate.isolated for candidate in self.candidates)

    def _candidate(self, point: Tensor) -> Candidate | None:
        """The candidate next to a point ``(D,)`` near the grid; None if it is outside of the span of the rows."""
        levels = as_levels(point)
        key = levels.numpy().tobytes()
        if key in self._candidate_of:
            return self._candidate_of[key]
        # A client may compute in float64, or with pixels rounded to float32: the one that is nearer to the span.
        records = as_records(levels)
        if self.precision >= torch.finfo(torch.float32).eps:
            records = records[1:]
        records = torch.cat([records, torch.ones(len(records), 1, dtype=torch.float64)], dim=1)
        coordinates = records @ self.basis.T
        misfits = (coordinates @ self.basis - records).norm(dim=1)
        nearest = int(misfits.argmin())
        record = records[nearest]
        # Noise of variance 1 in the rows moves it out of their span by sum_i (x v_i / sigma_i)^2 in each number.
        dual = coordinates[nearest] / self.core_values
        error = SURE * self.deviation * float(dual.norm()) * len(record) ** 0.5
        if self.exact and float(misfits[nearest]) > max(self.slack * float(record.norm()), error):
            return None
        candidate = Candidate(levels=levels, point=record)
        if self.errors is not None:
            candidate.changes = -self.rate * self.errors(record[None, :-1])[0]
        self._candidate_of[key] = candidate
        self.candidates.append(candidate)
        return candidate

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
            fits = list[tuple[RecordFit, Candidate]]()
            for candidate in self.candidates:
                fit = None if candidate.isolated else self._fit(candidate)
                if fit is None or not self._is_multiple_of_rarest(fit):
                    continue
                if math.isnan(fit.multiple):
                    candidate.is_corner = is_corner(self, candidate)
                    if corners and not candidate.is_corner:
                        continue
                fits.append((fit, candidate))
            if not fits:
                return
            # One at a time, as the fits of the others change with it; unknown numbers of times come last.
            fit, candidate = min(fits, key=lambda pair: math.inf if math.isnan(pair[0].multiple) else pair[0].multiple)
            self._isolate(fit, candidate)

    def _is_multiple_of_rarest(self, fit: RecordFit) -> bool:
        """Whether the update has a candidate a whole number of times as often as the rarest of its class."""
        if math.isnan(fit.multiple):
            return True
        of_class = [candidate.multiple for candidate in self.candidates if candidate.label == fit.label != -1]
        times = fit.multiple / min([fit.multiple, *of_class])
        return abs(times - round(times)) <= max(SAME_SCALE, fit.multiple_error)

    def _isolate(self, fit: RecordFit, candidate: Candidate) -> None:
        """Subtracts a candidate with its changes of the bias, and notes how many times the update has it."""
        self.subtract(fit.change, candidate.point, change_error=fit.change_error, in_columns=fit.in_columns)
        candidate.label = fit.label
        candidate.multiple = fit.multiple
        candidate.multiple_error = fit.multiple_error
        candidate.isolated = True
        candidate.in_columns = fit.in_columns

    def _fit(self, candidate: Candidate) -> RecordFit | None:
        """A candidate's changes of the bias, None if they are unknown."""
        if self.errors is None:
            return silent_fit(self, candidate) if self.has_columns else None
        fit = fit_of_columns(self, candidate) if self.has_columns else None
        if fit is not None and abs(fit.multiple - 1) <= fit.multiple_error:
            return fit
        fit = fit_of_neurons(self, candidate) or fit
        if fit is None and self.several_models and self.has_columns and is_of_another_model(self, candidate):
            fit = silent_fit(self, candidate)
        return fit
