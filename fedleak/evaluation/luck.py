"""Probability that an attack that learns nothing from updates would do as well on the same clients, by luck alone."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from fedleak.core.metric import Metric
from fedleak.core.metric_table import judges, metric
from fedleak.evaluation.comparisons import Cells
from fedleak.evaluation.mean_interval import MeanOverClients
from fedleak.evaluation.paired_means import mean_over_clients, paired
from fedleak.evaluation.result_names import ATTACKS, LUCK
from fedleak.evaluation.scores import records, setting_columns
from fedleak.evaluation.upper_end import Values

_ENUMERATED = 14
"""Units up to which all signs are looked at; of more, `2**14` drawn ones."""
_MOST_UNITS = 1000
"""Units above which the sum of random signs is normal to any precision that matters here."""


def with_luck(results: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """Results with the column `LUCK`: NaN for comparisons, and where nothing ran that an attack is compared with.

    The column has the largest of the probabilities of luck against guessing, what the attack's own answers reach by
    chance, and the best baseline, see `fedleak.evaluation.comparisons.Cells.comparisons`, on the same clients.

    Args:
        results: see `fedleak.evaluation.summary.summarise`.
        scores: scores of the clients.
    """
    if results.empty or scores.empty:
        return results.assign(**{LUCK: math.nan})
    key_columns = ["attack", "metric", *setting_columns(results)]
    scores_of = {}
    for _, cell_scores in scores.groupby(["attack", "metric", *setting_columns(scores)], sort=False, dropna=False):
        first = records(cell_scores.head(1))[0]
        scores_of[_key(first, key_columns)] = cell_scores
    cells = Cells(results)
    probabilities = []
    for row in records(results):
        probability = math.nan
        has_mean = row["mean"] == row["mean"]  # not NaN
        if row["role"] in ATTACKS and judges(row["metric"], row["question"]) and has_mean:
            # The attack, then what it is compared with that is a row of results.
            compared_rows = [row]
            for comparison in cells.comparisons(row):
                if comparison.kind == "chance" and comparison.row is not None:
                    compared_rows.append(comparison.row)
            baseline = cells.baseline(row)
            if baseline is not None and baseline.row is not None:
                compared_rows.append(baseline.row)
            tables = [scores_of.get(_key(compared, key_columns)) for compared in compared_rows]
            probability = _largest_luck(metric(row["metric"]), tables)
        probabilities.append(probability)
    return results.assign(**{LUCK: probabilities})


def _key(row: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
    """Values of columns as texts, without those that are missing."""
    present = [(column, row.get(column)) for column in columns]
    return tuple(f"{column}={value!r}" for column, value in present if value is not None and value == value)


def _largest_luck(entry: Metric, tables: Sequence[pd.DataFrame | None]) -> float:
    """Largest probability of luck of an attack, the first table of scores, against each comparison; NaN without one."""
    attack, *comparisons = tables
    if attack is None:
        return math.nan
    sign = entry.sign
    probabilities = []
    for comparison in comparisons:
        if comparison is None:
            continue
        difference, gaps, _ = paired(attack, comparison.assign(metric=entry.name))
        if not gaps.empty:
            probabilities.append(luck(difference, sign))
    if entry.guessing is not None:
        probabilities.append(luck(mean_over_clients(attack).minus(entry.guessing), sign))
    return max(probabilities, default=math.nan)


def luck(difference: MeanOverClients, sign: int = 1) -> float:
    """Probability that a mean difference is at least this large if every client's were as likely the opposite.

    If the update says nothing of a client, attack and comparison are two guesses, and which one is better is a coin's
    toss. So the share of all choices of signs that give a mean at least as large is the probability of luck (Fisher's
    permutation test of pairs). It asks nothing of the law of the differences, and is about these clients: with five of
    them it cannot be below ``2^-5``. Where clients affect each other's values, it is that of a t test of influences.

    >>> equal = MeanOverClients(0.3, np.full(5, 0.3), np.ones(5), (-1, 1), np.empty(0), np.empty(0))
    >>> luck(equal)
    0.03125

    Args:
        difference: attack minus comparison.
        sign: 1 if more is more leakage, -1 if less is.

    References:
        [Fisher35], section 21.
    """
    if len(difference.influences):
        return _of_t_test(sign * difference.mean, difference.influences)
    # The mean is larger where this sum is; sizes are the weights of units.
    weighted = sign * difference.values * difference.sizes
    weighted = weighted[weighted != 0]  # the sign of a difference of 0 changes nothing
    total = float(weighted.sum())
    if total <= 0:
        return 1.0
    # A sum of many random signs is normal with the variance sum d^2.
    if len(weighted) > _MOST_UNITS:
        return float(stats.norm.sf(total / math.sqrt(float((weighted**2).sum()))))
    # The share of the choices of signs with a sum as large, up to rounding.
    sums = _signs(len(weighted)) @ weighted
    as_large = int((sums >= total * (1 - 1e-9)).sum())
    drawn = len(weighted) > _ENUMERATED
    return (as_large + drawn) / (len(sums) + drawn)  # the signs as they are count among the drawn ones


@functools.lru_cache(maxsize=2)  # up to 65 MB each
def _signs(units: int) -> NDArray[np.float32]:
    """``(2**units, units)`` all choices of signs, or as many drawn ones as 14 units have."""
    # Each bit of the number of a row is the sign of one unit.
    if units <= _ENUMERATED:
        numbers = np.arange(2**units)[:, None]
        bits = (numbers >> np.arange(units)) & 1
    else:
        generator = np.random.default_rng(units)
        bits = generator.integers(0, 2, (2**_ENUMERATED, units), dtype=np.int8)
    return (1 - 2 * bits).astype(np.float32)


def _of_t_test(mean: float, influences: Values) -> float:
    """P(T > mean / standard error) with n - 1 degrees of freedom; by signs alone where influences are equal."""
    if len(influences) < 2:
        return 1.0
    deviation = float(influences.std(ddof=1)) / math.sqrt(len(influences))
    if deviation == 0:
        if mean > 0:
            return 0.5 ** len(influences)
        return 1.0
    return float(stats.t.sf(mean / deviation, len(influences) - 1))
