"""Counts that say how many examples are of each class, and shares from which they follow."""

import itertools
import math
from collections.abc import Iterator

import numpy as np

from fedleak_recorder.arrays import Array
from fedleak_recorder.lint.any_message import AnyMessage
from fedleak_recorder.lint.finding import Finding
from fedleak_recorder.lint.name_words import last_words, words_of
from fedleak_recorder.lint.sample import column_of
from fedleak_recorder.lint.settings import Settings
from fedleak_recorder.lint.sparse_updates import is_of_sparse_update

_MOST_CELLS = 10_000
_COUNTING = {"class", "classes", "label", "labels", "count", "counts", "hist", "histogram", "bin", "bins", "category"}
_SHARES = {"prevalence", "share", "shares", "proportion", "proportions", "distribution", "prior", "priors"}
_EXACT = 1e-3
"""Largest distance from a whole number of a share times the number of examples."""


def findings(message: AnyMessage, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001 - as every check
    """Counts and shares of the classes of the examples, or of the cells of a histogram."""
    for name, array in message.arrays.items():
        if is_of_sparse_update(message, name):
            continue
        column = column_of(array)
        if column is None or not 2 <= len(column) <= _MOST_CELLS or array.size > _MOST_CELLS:
            continue
        yield from _of_column(message, name, column)
    yield from _of_numbers(message)
    yield from _base_scores(message)


def totals_of(message: AnyMessage) -> dict[int, str]:
    """Numbers of people that a message names, each with its name."""
    totals = {}
    for name, number in message.numbers.items():
        is_count = message.is_example_count(name) or last_words(name)[-1:] in (["count"], ["total"], ["n"])
        if is_count and math.isfinite(number) and number == int(number) and number > 0:
            totals[int(number)] = name
    if message.examples is not None:
        totals.setdefault(message.examples, "the number of training examples")
    return totals


def _of_column(message: AnyMessage, name: str, column: Array) -> Iterator[Finding]:
    """A column that adds up to a number of people, or to 1 in steps of one of them."""
    if column.min() < 0 or np.count_nonzero(column) < 2:
        return
    total = float(column.sum(dtype=np.float64))
    if is_whole(column) and int(total) in (totals := totals_of(message)) and column.size < total:
        what = f"{len(column)} counts that add up to {int(total)}, which is {totals[int(total)]}"
        yield Finding("class-counts", what, name, "likely")
    elif column.dtype.kind == "f" and abs(total - 1) < 1e-5 and _is_share(column, message.examples):
        what = f"{len(column)} shares that are whole numbers of the {message.examples} training examples"
        yield Finding("class-counts", what, name, "likely")


def is_whole(column: Array) -> bool:
    """Whether all numbers of a column are whole."""
    return column.dtype.kind in "iu" or bool((column == np.round(column)).all())


def _is_share(values: Array, examples: int | None) -> bool:
    """Whether values times the number of examples are whole numbers, which is no chance."""
    if examples is None:
        return False
    counts = values.astype(np.float64) * examples
    # Each value is near a whole number with a chance of twice the distance, all of them with its power.
    by_chance = (2 * _EXACT) ** (len(values) - 1)
    return bool((np.abs(counts - np.round(counts)) < _EXACT).all()) and by_chance < 0.01


def _of_numbers(message: AnyMessage) -> Iterator[Finding]:
    """Single counts side by side that add up to the number of examples, such as ``class_0`` and ``class_1``."""
    examples = message.examples
    if examples is None:
        return
    parts = [(name, value) for name, value in message.numbers.items() if not message.is_example_count(name)]
    for parent, group in itertools.groupby(parts, key=lambda part: part[0].rpartition("/")[0]):
        counts = {}
        for name, value in group:
            is_count = math.isfinite(value) and value == int(value) and value >= 0
            if is_count and _COUNTING & {*words_of(name)}:
                counts[name] = value
        positive = [value for value in counts.values() if value > 0]
        if len(positive) >= 2 and sum(positive) == examples:
            what = f"{len(counts)} counts that add up to the {examples} training examples"
            yield Finding("class-counts", what, parent or next(iter(counts)), "likely")


def _base_scores(message: AnyMessage) -> Iterator[Finding]:
    """The base score of a tree, which is the share of positives unless the job fixes it, and shares by name."""
    for name, value in _scalars(message):
        words = last_words(name)
        is_base = words == ["base", "score"]
        if not (is_base or _SHARES & {*words}) or not 0 < value < 1 or value == 0.5:
            continue
        examples = message.examples
        if examples is None:
            if is_base:
                yield Finding("class-counts", f"a base score of {value:.6g}, fitted to the labels", name, "possible")
            continue
        count = value * examples
        # Written with 8 digits, so that the number of examples decides how near a whole number it must be.
        nearest = round(count)
        if abs(count - nearest) <= 2e-7 * examples < 0.01:
            what = f"{value:.6g} is {nearest} of the {examples} training examples"
            yield Finding("class-counts", what, name, "certain" if is_base else "likely")


def _scalars(message: AnyMessage) -> Iterator[tuple[str, float]]:
    """Single numbers, and texts that XGBoost writes its base score as."""
    yield from message.numbers.items()
    for name, text in message.texts.items():
        if last_words(name) == ["base", "score"]:
            try:
                yield name, float(text.strip("[] \n")[:40])
            except ValueError:
                continue
