"""Rows or columns of the data: values on a grid, sorted values, rows with labels, as many rows as examples."""

from collections.abc import Iterator

import numpy as np

from fedleak_recorder.arrays import Array
from fedleak_recorder.lint.any_message import AnyMessage
from fedleak_recorder.lint.checks.centroids import CENTRES
from fedleak_recorder.lint.data_grid import FEWEST_BITS, Grid, grid_of, is_around_zero_point, is_masked, is_two_valued
from fedleak_recorder.lint.finding import Finding
from fedleak_recorder.lint.name_words import last_words, words_of
from fedleak_recorder.lint.sample import column_of, rows_of
from fedleak_recorder.lint.settings import Settings
from fedleak_recorder.lint.sparse_updates import is_sparse_index

_MOSTLY = 0.7
"""Share of the columns that have no number below 0, from which on an array is a table of data: trained numbers and
quantised updates have as many columns above 0 as below."""
_FEWEST_SORTED = 16
"""Distinct sorted values that are no chance: one in 16! = 2e13."""
_ROUGH = 0.6
"""Mean |log| of the ratio of neighbouring gaps, from which on sorted values are drawn and not computed: 1.39 for
independent ones, near 0 for schedules, frequencies and the borders of bins."""
_FEWEST_EXAMPLES = 8
"""Examples from which on a dimension of their number is no chance."""
_NARROWEST_IMAGE = 8
"""Pixels of the shorter side of an image."""
_MOST_LABELS = 100
"""Classes of labels beside rows."""
_NAMES = ("x train", "train x", "y train", "train y", "x test", "y test", "raw data", "raw rows", "dataset")
_COUNTING = {"count", "counts", "size", "sizes", "hist", "histogram", "freq", "freqs", "frequencies"}
_COMPUTED = {"loss", "losses", "accuracy", "acc", "auc", "f1", "lr", "rate", "history", "score", "scores", "grad"}
"""Words of names of lists that fall or rise over the epochs of a training."""
_SPECTRA = {"singular", "eigenvalue", "eigenvalues", "eigvals", "explained", "codebook"}
"""Words of names of numbers that are sorted because an algorithm sorts them: of decompositions and of quantisation."""


def findings(message: AnyMessage, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001 - as every check
    """Arrays that are rows or columns of the data."""
    for name, array in message.arrays.items():
        if is_sparse_index(message, name):
            continue
        reason = _named(name) or _gridded(message, name, array) or _sorted(message, name, array)
        if reason:
            yield Finding("raw-rows", reason, name, "likely")
            continue
        labels = _labels_beside(message, name, array)
        if labels:
            yield Finding("raw-rows", f"{len(array)} rows beside their classes in {labels}", name, "likely")
        elif _is_as_long_as_the_data(message, name, array):
            yield Finding("raw-rows", f"{len(array)} rows, as many as training examples", name, "possible")


def _named(name: str) -> str:
    """That a name says it; empty if it does not."""
    words = " ".join(last_words(name))
    return "an array with the name of training data" if words in _NAMES else ""


def _gridded(message: AnyMessage, name: str, array: Array) -> str:
    """That values are on a grid of data and mostly not below 0; empty if they are not."""
    rows = rows_of(array)
    if rows is None or is_two_valued(rows):
        return ""
    if array.ndim == 1 or array.size == max(array.shape):
        return _gridded_column(message, name, array)
    if _is_quantised(message, array, rows) or _is_of_bins(name, array):
        return ""
    # By column, since a table has ages in one column and prices in another.
    columns_on_grid = 0
    above = 0
    bits = 0.0
    narrowest: Grid | None = None
    for column in rows.T:
        grid = grid_of(column)
        if grid is None or is_two_valued(column):
            continue
        columns_on_grid += 1
        bits += grid.bits
        above += bool(column.min() >= 0)
        if narrowest is None or grid.step < narrowest.step:
            narrowest = grid
    if narrowest is None or bits < FEWEST_BITS or above < _MOSTLY * columns_on_grid:
        return ""
    rest = sum(not is_two_valued(column) for column in rows.T) - columns_on_grid
    # Of a trained array all columns are off the grid, of a table some may be computed from others.
    if rest > columns_on_grid:
        return ""
    shape = " x ".join(map(str, array.shape))
    return f"{shape} {narrowest.words}, of which {columns_on_grid} columns of the first {rows.shape[1]} are data-like"


def _is_quantised(message: AnyMessage, array: Array, rows: Array) -> bool:
    """Whether whole numbers are those of an update of few bits, or of places."""
    if array.dtype.kind not in "iu" or _are_images(message, array):
        return False
    if _is_of_places(array) or is_masked(array):
        return True
    if is_around_zero_point(rows) and _can_be_below_zero(rows):
        return True
    return array.dtype.itemsize == 1 and not _has_most_at_an_end(rows)


def _can_be_below_zero(rows: Array) -> bool:
    """Whether whole numbers stand for numbers below 0: by their sign, or by a zero point within the range they fill.

    Ages have a most frequent value too, but in a type with a sign they are all above 0.
    """
    if rows.dtype.kind == "u" or rows.min() < 0:
        return True
    # Lists of bytes of a quantised update arrive in a type with a sign.
    return bool(rows.min() == 0 and rows.max() == 255)


def _has_most_at_an_end(rows: Array) -> bool:
    """Whether a fifth of the numbers are the smallest one, as in counts and dark images; quantised ones have few."""
    return bool(np.mean(rows == rows.min()) >= 0.2)


def _are_images(message: AnyMessage, array: Array) -> bool:
    """Whether an array has an image for each example: two sides of 8 pixels or more, of which neighbours are alike.

    Kernels of large patches are alike too, and are as many as a layer is wide.
    """
    if array.ndim < 3 or len(array) != message.examples or sorted(array.shape[1:])[-2] < _NARROWEST_IMAGE:
        return False
    images = array[:64].astype(np.float64)
    # Along the longest axis, which is one of the two sides.
    sides = np.moveaxis(images, 1 + int(np.argmax(array.shape[1:])), -1)
    neighbours = np.corrcoef(sides[..., :-1].reshape(-1), sides[..., 1:].reshape(-1))[0, 1]
    return bool(neighbours > 0.5)


def _is_of_places(array: Array) -> bool:
    """Whether whole numbers are those of pairs of places, as in masks and indices of relative positions.

    Such an array plus its transpose is one number off the diagonal: what stands before is 1 and what follows is 0, or
    the number of a distance and of its opposite add up.
    """
    matrix = array.reshape(array.shape[-2:]) if array.ndim > 2 and array.size == np.prod(array.shape[-2:]) else array
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) > 4096:
        return False
    first = matrix[:512, :512].astype(np.float64)
    sums = first + first.T
    beside_diagonal = sums[~np.eye(len(sums), dtype=bool)]
    return bool(beside_diagonal.min() == beside_diagonal.max())


def _gridded_column(message: AnyMessage, name: str, array: Array) -> str:
    """That a single column is on a grid of data; empty if it is not."""
    column = column_of(array)
    if column is None or column.min() < 0 or column.dtype.itemsize == 1 or name in message.lists:
        return ""
    # The vectors of a layer are as long as a side of its weight.
    if any(message.arrays[other].ndim > 1 for other in message.others_with_axis(array.size, name)):
        return ""
    grid = grid_of(column)
    if grid is None or grid.bits < FEWEST_BITS or _has_equal_gaps(column) or is_masked(column):
        return ""
    # Counts are those of other checks.
    if grid.step == 1.0 and _is_counting(message, name, array, column):
        return ""
    return f"a column of {array.size} {grid.words}, none below 0"


def _is_counting(message: AnyMessage, name: str, array: Array, column: Array) -> bool:
    """Whether whole numbers are counts: of the examples, by name, or of the points of centroids beside them."""
    if message.examples is not None and column.sum() == message.examples:
        return True
    if _COUNTING & {*last_words(name)}:
        return True
    beside = message.others_with_axis(array.size, name)
    return any(CENTRES & {*last_words(other)} for other in beside)


def _is_of_bins(name: str, array: Array) -> bool:
    """Whether rows are bins of a histogram: two borders and a count."""
    return array.ndim == 2 and array.shape[1] == 3 and bool(_COUNTING & {*words_of(name)})


def _has_equal_gaps(column: Array) -> bool:
    """Whether values rise or fall by one step, as positions and the borders of bins do."""
    gaps = np.diff(column.astype(np.float64))
    return bool(np.allclose(gaps, gaps[0], rtol=1e-3, atol=1e-12))


def _sorted(message: AnyMessage, name: str, array: Array) -> str:
    """That values are sorted and no schedule; empty if they are not."""
    column = column_of(array)
    words = {*last_words(name)}
    if column is None or _SPECTRA & words or (name in message.lists and _COMPUTED & words):
        return ""
    gaps = np.diff(column.astype(np.float64))
    if not ((gaps >= 0).all() or (gaps <= 0).all()):
        return ""
    steps = np.abs(gaps[gaps != 0])
    if len(steps) < _FEWEST_SORTED:
        return ""
    roughness = float(np.abs(np.diff(np.log(steps))).mean())
    if roughness < _ROUGH:
        return ""
    return f"{array.size} sorted values with {len(steps) + 1} distinct ones, in unequal steps"


def _labels_beside(message: AnyMessage, name: str, array: Array) -> str:
    """Name of an array with a class for each row of this one; empty if there is none."""
    if array.ndim < 2 or len(array) < _FEWEST_EXAMPLES or array.dtype.kind != "f":
        return ""
    rows = rows_of(array)
    if rows is None or is_two_valued(rows):
        return ""
    for other in message.axes.get(len(array), ()):
        if other != name and _is_classes(message.arrays[other], len(array)):
            return other
    return ""


def _is_classes(array: Array, rows: int) -> bool:
    """Whether an array is a column of classes: few whole numbers from -1, each of them often."""
    column = column_of(array)
    if column is None or array.size != rows or column.min() < -1:
        return False
    classes, counts = np.unique(column, return_counts=True)
    if not 2 <= len(classes) <= min(_MOST_LABELS, rows // 4):
        return False
    # Updates of three values have -1, 0 and 1; classes have two of them.
    is_of_signs = classes.min() == -1 and not np.array_equal(classes, [-1, 1])
    return bool((classes == np.round(classes)).all()) and not is_of_signs and int(np.median(counts)) >= 2


def _is_as_long_as_the_data(message: AnyMessage, name: str, array: Array) -> bool:
    """Whether an array has a row for each example, and no other array says that its rows are a layer's."""
    count = message.examples
    if count is None or array.ndim < 2 or len(array) != count or count < _FEWEST_EXAMPLES or array.size == count:
        return False
    rows = rows_of(array)
    if rows is None or is_two_valued(rows):
        return False
    # Rows of zeros are those of a table that the client did not touch.
    has_untouched = not np.abs(rows).sum(axis=1).all()
    # Vectors of a layer are no whole numbers; those of the places of records are.
    others = [message.arrays[other] for other in message.others_with_axis(count, name)]
    return not has_untouched and all(other.ndim == 1 and other.dtype.kind in "iu" for other in others)
