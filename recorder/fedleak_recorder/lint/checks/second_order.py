"""Matrices of second order: Hessians beside gradients, scatter and covariance matrices."""

from collections.abc import Iterator

import numpy as np

from fedleak_recorder.arrays import Array
from fedleak_recorder.lint.any_message import AnyMessage
from fedleak_recorder.lint.finding import Finding
from fedleak_recorder.lint.name_words import last_words
from fedleak_recorder.lint.settings import Settings

_NAMES = {"hessian", "fisher", "scatter", "covariance", "cov", "gram", "gramian", "xtx"}
_NARROWEST = 3
_MOST = 512
"""Rows and columns that are compared with those of the transpose."""
_ROUNDING = 1e-5
"""Largest difference from the transpose, as a share of the largest number: sums in single precision."""


def findings(message: AnyMessage, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001 - as every check
    """Square matrices that are symmetric, or whose name says it."""
    for name, array in message.arrays.items():
        if array.ndim != 2 or array.shape[0] != array.shape[1] or len(array) < 2 or array.dtype.kind != "f":
            continue
        width = len(array)
        is_named = bool(_NAMES & {*last_words(name)})
        if not is_named and not _is_symmetric(array):
            continue
        beside = _vector_beside(message, name, width)
        what = f"a symmetric {width} x {width} matrix"
        if beside:
            what = f"{what} beside {beside} of the same width, as a Hessian beside its gradient"
        yield Finding("second-order", what, name, "certain" if is_named else "likely")


def _is_symmetric(array: Array) -> bool:
    """Whether a matrix is its own transpose, neither diagonal nor of few values."""
    first = array[:_MOST, :_MOST].astype(np.float64)
    if len(first) < _NARROWEST or not np.isfinite(first).all():
        return False
    largest = np.abs(first).max()
    beside_diagonal = first[np.triu_indices(len(first), 1)]
    # Signs, masks and updates of few levels are symmetric by chance.
    has_many_values = len(np.unique(beside_diagonal)) > 0.5 * len(beside_diagonal)
    return bool(has_many_values and np.abs(first - first.T).max() <= _ROUNDING * largest)


def _vector_beside(message: AnyMessage, name: str, width: int) -> str:
    """Name of a vector of the same width; empty if there is none."""
    for other in message.others_with_axis(width, name):
        if message.arrays[other].size == width:
            return other
    return ""
