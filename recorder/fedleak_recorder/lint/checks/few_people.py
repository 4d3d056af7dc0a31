"""Statistics of few people: cells of counts below the minimum, smallest and largest values."""

import math
from collections.abc import Iterator

import numpy as np

from fedleak_recorder.arrays import Array
from fedleak_recorder.lint.any_message import AnyMessage
from fedleak_recorder.lint.checks.class_counts import is_whole, totals_of
from fedleak_recorder.lint.data_grid import is_two_valued
from fedleak_recorder.lint.finding import Finding
from fedleak_recorder.lint.name_words import last_words, words_of
from fedleak_recorder.lint.sample import column_of
from fedleak_recorder.lint.settings import Settings
from fedleak_recorder.lint.sparse_updates import is_of_sparse_update

_FEWEST_IN_ALL = 10
"""People in all from which on numbers that add up to them are a histogram and no chance."""
_COUNTS = {"count", "counts", "hist", "histogram", "freq", "freqs", "frequency", "frequencies", "cell", "cells"}
_PEOPLE = {"cases", "deaths", "patients", "people", "persons", "subjects", "observed", "censored", "risk", "events"}
_OF_TRAINING = {"batch", "batches", "epoch", "epochs", "round", "rounds", "step", "steps", "layer", "layers", "token"}
_OF_MODELS = {
    "tokens",
    "param",
    "params",
    "parameters",
    "tracked",
    "inv",
    "iter",
    "iters",
    "iteration",
    "iterations",
    "tree",
}
_OF_NUMBERS = {
    "norm",
    "grad",
    "lr",
    "loss",
    "clip",
    "weight",
    "scale",
    "delta",
    "depth",
    "index",
    "indices",
    "activation",
    "observer",
}
_OF_QUANTISATION = {"fake", "quant", "quantizer", "length", "val", "process"}
_NO_COUNTS = _OF_TRAINING | _OF_MODELS | {"scale", "index", "indices"}
_NO_EXTREMES = _OF_TRAINING | _OF_MODELS | _OF_NUMBERS | _OF_QUANTISATION
"""Words of names whose counts and extremes are not those of people."""
_EXTREMES = {"min", "max", "minimum", "maximum", "median", "quantile", "quantiles", "percentile", "percentiles"}


def findings(message: AnyMessage, settings: Settings) -> Iterator[Finding]:
    """Counts below the minimum, and values of single people."""
    totals = totals_of(message)
    for name, array in message.arrays.items():
        if is_of_sparse_update(message, name):
            continue
        column = _cells_of(name, array)
        if column is None:
            if _is_extreme(name) and array.size:
                yield _extreme(name)
            continue
        small = _small_cells(name, column, totals, settings.minimum)
        if small:
            what = f"{small} of {array.size} cells count fewer than {settings.minimum} people"
            yield Finding("few-people", what, name, "likely")
        elif _is_extreme(name):
            yield _extreme(name)
    for name, number in message.numbers.items():
        is_small = math.isfinite(number) and 0 < number < settings.minimum and number == int(number)
        if is_small and (message.is_example_count(name) or _is_count(name)) and not isinstance(number, bool):
            yield Finding("few-people", f"{int(number)}, below the minimum of {settings.minimum}", name, "likely")
        elif _is_extreme(name):
            yield _extreme(name)


def _cells_of(name: str, array: Array) -> Array | None:
    """Numbers of a column, or the counts of bins, which are rows of their two borders and a count."""
    is_of_bins = array.ndim == 2 and array.shape[1] == 3 and _is_count(name)
    return column_of(array[:, 2] if is_of_bins else array)


def _small_cells(name: str, column: Array, totals: dict[int, str], minimum: int) -> int:
    """Number of cells of a histogram that are not empty and below the minimum; 0 if it is none."""
    if column.min() < 0 or not is_whole(column):
        return 0
    total = int(column.sum(dtype=np.float64))
    # Equal numbers, such as the ones of a normalisation layer, add up to any number of examples by their width alone.
    adds_up = total >= _FEWEST_IN_ALL and total in totals and not is_two_valued(column)
    if not (_is_count(name) or adds_up):
        return 0
    return int(np.count_nonzero((column > 0) & (column < minimum)))


def _is_count(name: str) -> bool:
    """Whether a name is that of counts of people."""
    # What is counted may be said by a level above, what is not by the last name alone.
    is_counted = bool({*words_of(name)} & (_COUNTS | _PEOPLE))
    return is_counted and not {*last_words(name)} & _NO_COUNTS


def _is_extreme(name: str) -> bool:
    """Whether a name is that of a smallest, largest or middle value, which is that of a person."""
    for part in name.split("/"):
        words = words_of(part)
        # Of `age_min` and `min_age`, not of a name in which it stands in the middle.
        ends = {*words[:1], *words[-1:]}
        if ends & _EXTREMES and not {*words, *last_words(name)} & _NO_EXTREMES:
            return True
    return False


def _extreme(name: str) -> Finding:
    return Finding(
        "few-people", "a smallest, largest or middle value, which is the value of one person", name, "possible"
    )
