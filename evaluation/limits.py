"""One attack held against one limit: its mean over clients, its rounds, and the clients that a mean hides."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from evaluation.scores import describe, rows_of, setting_of
from evaluation.summary import clusters, crossed
from protocol.metric_table import metric

FEWEST = 5
"""Smallest number of clients whose interval decides."""
MOST_UNSCORED = 0.1
"""Largest share of clients without a value of an audit that passes."""
_TAIL = 0.025
"""Probability that an interval of 95% leaves out at each end."""
_NORMAL = float(stats.norm.ppf(1 - _TAIL))
_TO_NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""


@dataclass(frozen=True)
class Measured:
    """Value of one attack in one setting, in units in which a limit is exceeded from below: the metric times its sign.

    Attributes:
        label: attack, with its setting if there are several, and its round.
        value: mean over clients, or value of the worst client.
        safe: end of the interval that is further from the leak, one-sided at 97.5% for all attacks and rounds together.
        leaky: end that is nearer to it, one-sided at 97.5%; infinite if a client that could be the worst has no value.
        n: number of clients.
        enough: whether there are enough clients to decide.
        doubt: why it does not pass, although the interval is on the safe side of the limit; None for no reason.
        about: what the value is made of, for the message; empty for the attack's own metric.
    """

    label: str
    value: float
    safe: float
    leaky: float
    n: int
    enough: bool
    doubt: str | None = None
    about: str = ""


def measured(
    row: Mapping[str, Any], scores: pd.DataFrame, *, limit: float, keys: set[str], attacks: int
) -> Iterator[Measured]:
    """An attack's mean over clients, and that of each of its rounds whose mean is beyond the limit.

    The limit is in the units of `Measured`, `keys` are the settings that differ between results, and `attacks` is the
    number of attacks and settings that are held against the limit.
    """
    sign = -1 if metric(row["metric"]).lower_is_better else 1
    own, setting = rows_of(scores, row), describe(setting_of(row), keys)
    label = f"{row['attack']} in {setting}" if setting else str(row["attack"])
    if metric(row["metric"]).worst_client:
        yield _worst_client(row, scores, label, sign)
        return
    n = int(row["n"])
    groups = clusters(own) if len(own) else None
    units = n if groups is None else groups.nunique()
    safe, leaky = sorted((sign * row["low"], sign * row["high"]))
    value = sign * row["mean"]
    ends = (value - (value - safe) * wider(units, attacks), value + (leaky - value) * wider(units, 1))
    low, high = sorted(sign * end for end in (metric(row["metric"]).span or (-math.inf, math.inf)))
    doubt = None
    if len(own):
        values = sign * crossed(own).mean(axis=1)
        doubt = hidden(values, limit=limit, tests=attacks, binary=metric(row["metric"]).binary, sign=sign)
    yield Measured(label, value, max(ends[0], low), min(ends[1], high), n, n >= FEWEST, doubt)
    yield from _rounds(own, label, sign, limit, attacks)


def wider(units: int, tests: int = 1) -> float:
    """Half a t interval for several tests over that of a percentile bootstrap, which is too short for few units.

    It is infinite for fewer than two units; `units` are clients, or what is resampled instead of them.
    """
    if units < 2:
        return math.inf
    quantile = float(stats.t.ppf(1 - _TAIL / tests, units - 1))
    return quantile / _NORMAL * math.sqrt(units / (units - 1))


def _rounds(own: pd.DataFrame, label: str, sign: int, limit: float, attacks: int) -> Iterator[Measured]:
    """Rounds whose mean over clients is beyond the limit, where clients have values of their own."""
    rounds = own.groupby("round") if own["round"].nunique() > 1 and not own["influence"].notna().any() else ()
    for number, part in rounds:
        values = sign * crossed(part).mean(axis=1).dropna()
        if len(values) and values.mean() > limit:
            error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.inf
            tails = (_TAIL / (attacks * own["round"].nunique()), _TAIL)
            below, above = (float(stats.t.ppf(1 - tail, max(len(values) - 1, 1))) * error for tail in tails)
            mean, doubt = float(values.mean()), "one round is beyond the limit"
            ends, n = (mean - below, mean + above), len(values)
            yield Measured(f"{label} in round {number}", mean, *ends, n, n >= FEWEST, doubt)


def hidden(values: "pd.Series[float]", *, limit: float, tests: int, binary: bool, sign: int = 1) -> str | None:
    """What the mean of clients' values hides: clients without a value, or some beyond the limit unlike the others.

    The others' spread about their median says how many clients would be beyond the limit if all were alike; the
    binomial distribution, whether more are.

    Args:
        values: ``(P,)`` values in the units of `Measured`, NaN where a client has none.
        limit: limit in the same units.
        tests: number of attacks and settings that are held against the limit.
        binary: whether a single value is 0 or 1, so that values are never alike.
        sign: factor from these units to those of the metric.
    """
    people, known = len(values), values.dropna().to_numpy()
    if people - len(known) > MOST_UNSCORED * people:
        return f"{people - len(known)} of {people} clients have no value"
    beyond = known[known > limit]
    if binary or not len(beyond):
        return None
    middle = float(np.median(known))
    spread = _TO_NORMAL * float(np.median(np.abs(known - middle)))
    alike = float(stats.norm.sf((limit - middle) / spread)) if spread else float(middle > limit)
    if stats.binom.sf(len(beyond) - 1, len(known), alike) >= _TAIL / tests:
        return None
    mean = f"{sign * float(beyond.mean()):.3f}"
    return f"{len(beyond)} of {len(known)} clients are beyond the limit, {mean} on average, unlike the others"


def _worst_client(row: Mapping[str, Any], scores: pd.DataFrame, label: str, sign: int) -> Measured:
    """Value of the worst client, with the interval of metrics ``NAME-low`` and ``NAME-high`` if there are such."""

    def by_client(name: str) -> "pd.Series[float]":
        own = rows_of(scores, {**row, "metric": name})
        return (sign * own["value"]).groupby(own["person"]).max()

    values = by_client(row["metric"])
    safe, leaky = (by_client(f"{row['metric']}-{end}") for end in ("low", "high")[::sign])
    ends = [end.reindex(values.index).fillna(values).max() for end in (safe, leaky)]
    leakiest = math.inf if values.isna().any() else float(ends[1])
    return Measured(label, float(values.max()), float(ends[0]), leakiest, len(values), True)
