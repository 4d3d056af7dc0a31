"""Centroids of few points: of clusters, and of digests of quantiles."""

from collections.abc import Iterator

import numpy as np

from fedleak_recorder.arrays import Array
from fedleak_recorder.lint.any_message import AnyMessage
from fedleak_recorder.lint.checks.class_counts import is_whole
from fedleak_recorder.lint.finding import Finding
from fedleak_recorder.lint.name_words import last_words
from fedleak_recorder.lint.sample import column_of
from fedleak_recorder.lint.settings import Settings

CENTRES = {"center", "centers", "centre", "centres", "centroid", "centroids", "prototype", "prototypes", "digest"}
_WEIGHTS = {"count", "counts", "weight", "weights", "size", "sizes", "mass"}


def findings(message: AnyMessage, settings: Settings) -> Iterator[Finding]:
    """Arrays named after centroids, some of which are those of fewer points than the minimum."""
    for name, array in message.arrays.items():
        if not CENTRES & {*last_words(name)} or array.size < 2:
            continue
        counts = _counts_beside(message, name, len(array))
        if counts is None:
            yield from _without_counts(message, name, array, settings)
            continue
        small = int(np.count_nonzero((counts > 0) & (counts < settings.minimum)))
        if small:
            what = f"{small} of {len(counts)} centroids are those of fewer than {settings.minimum} points"
            yield Finding("centroids", what, name, "certain")


def _counts_beside(message: AnyMessage, name: str, length: int) -> Array | None:
    """``(K,)`` whole numbers beside centroids, by name; None if there are none."""
    for other in message.others_with_axis(length, name):
        column = column_of(message.arrays[other])
        is_named = bool(_WEIGHTS & {*last_words(other)})
        if is_named and column is not None and len(column) == length and column.min() >= 0 and is_whole(column):
            return column
    return None


def _without_counts(message: AnyMessage, name: str, array: Array, settings: Settings) -> Iterator[Finding]:
    """Centroids whose numbers of points are not sent: there may be one that is a single record."""
    examples = message.examples
    what = f"{len(array)} centroids, of how many points each is not sent"
    if examples is not None and examples < settings.minimum * len(array):
        what = f"{len(array)} centroids of {examples} examples, fewer than {settings.minimum} for each"
    yield Finding("centroids", what, name, "possible")
