"""Records found in the span of a linear layer's update: on the grid of pixels, and consistent with the whole update.

Records that no neuron isolates are searched for at the vertices of the polytope of all images in the span.
"""

from collections.abc import Callable

import torch
from torch import Tensor

_BLACK = 1e-4
"""Pixels below this are black in a row's ratio."""
_FEWEST_BLACK = 8
"""Fewest pixels that are black in a row's ratio but not in all records; without them it tells nothing."""
_NOISE = 0.1
_WEIGHT = 10.0

_LEVELS = 255
"""Steps of a pixel in [0, 1] of 8 bits."""
_CHANCE = 1e-12
"""Largest probability with which a combination of records may look like a record."""
_LEAST_DISTANCE = 1e-3
"""Distance from the grid, in levels, below which rounding of the numbers hides the true one."""
_MOST_DISTANCE = 0.25
_GAP = 0.1
"""Largest ratio of the singular value after the last of the records to that one."""
MOST_MISFIT = 0.1
"""Largest relative distance of a record's changes of the bias from the span, also where rounding allows more."""
MARGIN = 0.05
"""Share of the largest input of a neuron below whose negative a neuron is silent also after a few steps."""

RecordErrors = Callable[[Tensor], Tensor]
"""From records ``(M, D)`` to the changes of the bias ``(M, K, N)`` that each makes as a record of each class."""


class RecordSpan:
    """The rows ``(N, D + 1)`` of a client's update, as sums ``C^T [X, 1]`` of at most a given number of records.

    The rows span the records. In this span, a record is a point with all numbers on the grid of 8-bit pixels: of other
    points, a number between 0 and 255 levels lies within distance d of a whole one with probability 2d, so a vector
    with n such numbers is a combination with probability ``(2d)^n``. Images of few grey levels are an exception: three
    quarters of one and a quarter of another may be on the grid too. So a record is certain only with its changes u of
    the bias, which lie in the span of the columns. If the clients made one step of a known algorithm, they are those of
    the record's class at the global model. Otherwise, after ReLU, they are the only vector of the span that is zero at
    all neurons that the record does not excite.

    A certain record is subtracted, which isolates others: without it the update is ``M - u x^T / (x^T M^+ u)``,
    whatever the learning rate, the clipping and the other records.

    Args:
        rows: ``(N, D + 1)`` float64.
        records: number of records of the client; of a sum of clients, the rows show more.
        precision: relative precision of the rows.
        model: weight and bias ``(N, D + 1)`` of the layer.
        errors: the records' changes of the bias by class; None if unknown.

    References:
        Wedderburn, "Lectures on Matrices", 1934, on the rank of ``M - u x^T / (x^T M^+ u)``.
    """

    def __init__(
        self, rows: Tensor, records: int, *, precision: float, model: Tensor, errors: RecordErrors | None
    ) -> None:
        self.errors, self.model, self.precision = errors, model, precision
        left, values, basis = torch.linalg.svd(rows, full_matrices=False)
        visible = int((values > 4 * precision * values[0]).sum())
        self.rank = min(records, visible)
        if self.rank < visible < len(values) and not _ends(values, self.rank) and _ends(values, visible):
            self.rank = visible
        self.exact = self.rank > 0 and (self.rank == len(values) or _ends(values, self.rank))
        """Whether the rows are sums of so few records, and no noise."""
        self.columns, self.basis, self.core = left[:, : self.rank], basis[: self.rank], values[: self.rank].diag()
        # Rounding of the rows turns the directions of the smallest singular values most.
        self.slack = max(1e-6, 30 * precision * float(values[0] / values[self.rank - 1])) if self.rank else 1.0
        self.floor = 1e3 * precision * float(rows[:, -1].abs().max())
        self.levels: list[Tensor] = []
        self.classes: list[int] = []
        self.certain: list[bool] = []
        self.left = self.rank
        """Rank of the rows without the records that were subtracted."""
        self._known: set[bytes] = set()

    def remaining(self) -> tuple[Tensor, Tensor]:
        """Rows ``(N, D + 1)`` without the records that were subtracted, and an orthonormal basis of their span."""
        basis = torch.linalg.svd(self.core)[2][: self.left] @ self.basis
        return self.columns @ self.core @ self.basis, basis

    def peel(self) -> None:
        """Takes records that alone excite a neuron, until no neuron of the rows that remain has just one."""
        while self.left:
            before, (rows, _) = self.left, self.remaining()
            live = rows[:, -1].abs() > self.floor
            self.take(rows[live, :-1] / rows[live, -1:])
            if self.left == before:
                return

    def take(self, points: Tensor) -> int:
        """Number of new records among points ``(M, D)``, which are kept and, where possible, subtracted."""
        levels = points[on_grid(points)].mul(_LEVELS).round().to(torch.uint8)
        return sum(self._take(own) for own in torch.unique(levels, dim=0)) if len(levels) else 0

    def _take(self, levels: Tensor) -> bool:
        key = levels.numpy().tobytes()
        record = torch.cat([as_record(levels, self.precision), torch.ones(1, dtype=torch.float64)])
        inside = record @ self.basis.T
        misfit = float((inside @ self.basis - record).norm() / record.norm())
        if key in self._known or (self.exact and misfit > self.slack):
            return False
        self._known.add(key)
        self.levels.append(levels)
        label, change = self._change(record) if self.exact else (-1, None)
        self.classes.append(label)
        self.certain.append(change is not None)
        if change is not None:
            left, values, right = torch.linalg.svd(self.core)
            kept = slice(0, self.left)
            scale = (inside @ right[kept].T / values[kept]) @ (left[:, kept].T @ change)
            self.core = self.core - change[:, None] * inside / scale
            self.left -= 1
        return True

    def _change(self, record: Tensor) -> tuple[int, Tensor | None]:
        """Class of a record, -1 if unknown, and its changes of the bias as coordinates in `columns`, or None."""
        if self.errors is not None:
            changes = self.errors(record[None, :-1])[0]
            within = changes @ self.columns
            misfit = (changes - within @ self.columns.T).norm(dim=1) / changes.norm(dim=1).clamp(min=1e-300)
            best = int(misfit.argmin())
            if float(misfit[best]) <= min(self.slack, MOST_MISFIT):
                return best, within[best]
        excitement = self.model @ record
        silent = excitement < -MARGIN * excitement.abs().max()
        turn = torch.linalg.svd(self.core)[0][:, : self.left]
        if int(silent.sum()) <= self.left:
            return -1, None
        _, values, directions = torch.linalg.svd(self.columns[silent] @ turn, full_matrices=False)
        alone = self.left == 1 or bool(values[-1] < _GAP * values[-2])
        return -1, turn @ directions[-1] if alone and float(values[-1]) <= min(self.slack, MOST_MISFIT) else None


def _ends(values: Tensor, rank: int) -> bool:
    """Whether the singular values after the first `rank` are small."""
    return rank < len(values) and bool(values[rank] < _GAP * values[rank - 1])


def on_grid(points: Tensor) -> Tensor:
    """``(M,)`` bool, whether points ``(M, D)`` are records: every number on the grid of 8-bit pixels in [0, 1].

    A combination of records would be so near the grid with probability 1e-12. A record of one colour only looks like a
    failure and is refused.
    """
    levels = points * _LEVELS
    distance = (levels - levels.round()).abs().amax(1)
    inner = ((levels > 0.5) & (levels < _LEVELS - 0.5)).sum(1)
    chance = (2 * distance.clamp(min=_LEAST_DISTANCE)) ** inner
    within = (levels.amin(1) > -_MOST_DISTANCE) & (levels.amax(1) < _LEVELS + _MOST_DISTANCE)
    return within & (distance < _MOST_DISTANCE) & (chance < _CHANCE) & (inner > 0)


def as_record(levels: Tensor, precision: float) -> Tensor:
    """Float64 values of 8-bit pixels as a network computes them in a precision: ``levels / 255``, rounded."""
    exact = levels.double() / _LEVELS
    return exact if precision < torch.finfo(torch.float32).eps else (levels.float() / _LEVELS).double()


def search_faces(span: RecordSpan, *, failures: int, programs: int, generator: torch.Generator) -> None:
    """Finds records by linear programs in the span of the records that remain.

    The images in the affine span, ``{v^T B : v^T b = 1, 0 <= v^T B <= 1}`` for a basis B with last column b, are a
    polytope. Each record is in it, and is a vertex if enough of its pixels are black or white while they are not so in
    other records. A neuron that only few records excite has a ratio that is black where all of these are: the images
    that are black there too are a face of the polytope with few vertices, of which a random cost chooses one. The
    grid of pixels decides whether it is a record. So images with black background are found without a singleton.

    The search stops after `failures` programs in a row without a new record, or after `programs` in all.

    References:
        This project; the idea to find sparse points of a span by linear programs is of Spielman, Wang and Wright,
        "Exact Recovery of Sparsely-Used Dictionaries", COLT 2012, arXiv:1206.5882.
    """
    failed = 0
    while span.left and len(span.levels) < span.rank and failed < failures:
        before, found = span.left, len(span.levels)
        rows, basis = span.remaining()
        black, used = _black_pixels(span, rows, basis)
        for own in black:
            cost = own * _WEIGHT + _NOISE * torch.randn(len(own), generator=generator).double()
            point = _vertex(basis, used, cost, span.slack)
            programs -= 1
            failed = 0 if point is not None and span.take(point[None]) else failed + 1
            if failed == failures or not programs:
                return
            if span.left < before:
                span.peel()
                break
        if len(span.levels) == found:
            return


def _black_pixels(span: RecordSpan, rows: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """``(M, P)`` black pixels of each row's ratio, blackest first, and ``(P,)`` pixels not always black."""
    used = (basis[:, :-1].abs().amax(0) > max(1e-9, span.precision * 10)).nonzero().flatten()
    live = rows[:, -1].abs() > span.floor
    black = (rows[live][:, used] / rows[live, -1:]).abs() < _BLACK
    count = black.sum(1)
    order = count.argsort(descending=True)
    return black[order[count[order] >= _FEWEST_BLACK]].double(), used


def _vertex(basis: Tensor, used: Tensor, cost: Tensor, slack: float) -> Tensor | None:
    """``(D,)`` image of least cost in the span, None if the program has no solution."""
    from scipy.optimize import linprog  # slow to import

    own = basis[:, used].numpy()
    slack = min(slack, 1e-4)
    solved = linprog(
        own @ cost.numpy(),
        A_ub=torch.cat([-basis[:, used].T, basis[:, used].T]).numpy(),
        b_ub=torch.cat([torch.full((len(used),), slack), torch.full((len(used),), 1 + slack)]).numpy(),
        A_eq=basis[:, -1:].T.numpy(),
        b_eq=[1.0],
        bounds=(None, None),
        method="highs",
    )
    return None if solved.status else torch.from_numpy(solved.x) @ basis[:, :-1]
