"""Records that no neuron isolates, at the vertices of the polytope of all images in the span of an update."""

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.record_span import RecordSpan

_BLACK = 1e-4
"""Pixels below this are black in a row's ratio."""
_FEWEST_BLACK = 8
"""Fewest pixels that are black in a row's ratio but not in all records; without them it says nothing."""
_WEIGHT = 10.0
"""Cost of the pixels that are black in a row's ratio: an image of least cost is black there too."""
_NOISE = 0.1
"""Standard deviation of the costs of all pixels, which choose one of these images."""


def search_faces(span: RecordSpan, *, failures: int, programs: int, generator: torch.Generator) -> None:
    """Finds records by linear programs in the span of the records that remain.

    The images in the affine span, ``{v^T B : v^T b = 1, 0 <= v^T B <= 1}`` for a basis B with last column b, are a
    polytope. Each record is in it, and is a vertex if enough of its pixels are black or white while they are not so in
    other records. A neuron that only few records excite has a ratio that is black where all of these are: the images
    that are black there too are a face of the polytope with few vertices, of which a random cost chooses one. The
    grid of pixels decides whether it is a record. So images with black background are found without a singleton.

    The search stops after `failures` programs in a row without a new record, or after `programs` in all.

    References:
        This project; the idea to find sparse points of a span by linear programs is of [Spielman12].
    """
    failed = 0
    while span.left and len(span.levels) < span.rank and failed < failures:
        left_before = span.left
        candidates_before = len(span.levels)
        rows, basis = span.remaining()
        black, used = _black_pixels(span, rows, basis)
        for black_pixels in black:
            # A random cost chooses a vertex; pixels that are black in the ratio cost most, so they stay black.
            noise = torch.randn(len(black_pixels), generator=generator).double()
            cost = black_pixels * _WEIGHT + _NOISE * noise
            point = _vertex(basis, used, cost, span.slack)
            programs -= 1
            if point is not None and span.take(point[None]):
                failed = 0
            else:
                failed += 1
            if failed == failures or not programs:
                return
            # What was subtracted may isolate records; the span is another one then, so it starts anew.
            if span.left < left_before:
                span.peel()
                break
        if len(span.levels) == candidates_before:
            return


def _black_pixels(span: RecordSpan, rows: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """``(M, P)`` black pixels of each row's ratio, blackest first, and ``(P,)`` pixels not always black."""
    # A pixel that the span leaves at 0 is black in all records that remain.
    used = (basis[:, :-1].abs().amax(0) > max(1e-9, span.precision * 10)).nonzero().flatten()
    _, _, points, _ = span.ratios(rows)
    black = points[:, used].abs() < _BLACK
    count = black.sum(1)
    order = count.argsort(descending=True)
    with_enough = order[count[order] >= _FEWEST_BLACK]
    return black[with_enough].double(), used


def _vertex(basis: Tensor, used: Tensor, cost: Tensor, slack: float) -> Tensor | None:
    """``(D,)`` image of least cost in the span, None if the program has no solution."""
    from scipy.optimize import linprog  # slow to import

    directions = basis[:, used]
    slack = min(slack, 1e-4)
    # Over v: least cost of the image v^T B, with v^T b = 1 and each pixel in [0, 1] up to the slack.
    lowest = torch.full((len(used),), slack)
    highest = torch.full((len(used),), 1 + slack)
    solution = linprog(
        directions.numpy() @ cost.numpy(),
        A_ub=torch.cat([-directions.T, directions.T]).numpy(),
        b_ub=torch.cat([lowest, highest]).numpy(),
        A_eq=basis[:, -1:].T.numpy(),
        b_eq=[1.0],
        bounds=(None, None),
        method="highs",
    )
    if solution.status:
        return None
    return torch.from_numpy(solution.x) @ basis[:, :-1]
