"""One attack held against one limit: its mean over clients, its rounds, and the clients that a mean hides."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from fedleak.core.metric_table import metric
from fedleak.evaluation.mean_interval import MOST_TIMES, TAIL, MeanOverClients
from fedleak.evaluation.paired_means import crossed, mean_over_clients
from fedleak.evaluation.scores import describe, rows_of, setting_of

FEWEST = 5
"""Smallest number of clients whose interval decides."""
MOST_UNSCORED = 0.1
"""Largest share of clients without a value of an audit that passes."""
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
        excuse: why it does not fail, although the whole interval is beyond the limit; None for no reason.
        whole: whether the mean is a fact: all clients of the recording that the limit is about were attacked, or a
            change is 0 for every client.
        about: what the value is made of, for the message; empty for the attack's own metric.
        mean: mean of which the ends are, None where they are not made of one.
        tests: number of tests together for which `safe` is.
    """

    label: str
    value: float
    safe: float
    leaky: float
    n: int
    enough: bool
    doubt: str | None = None
    about: str = ""
    excuse: str | None = None
    whole: bool = False
    mean: MeanOverClients | None = None
    tests: int = 1

    def more_clients(self, limit: float) -> int | None:
        """About how many more clients would decide, if they are like these; None for no number.

        Without a mean, the distance of an end from it is taken to shrink with the root of the number of clients.
        """
        if self.mean is not None:
            times = self.mean.times_that_decide(limit, low_tests=self.tests)
        else:
            end, gap = (self.safe if self.value > limit else self.leaky), limit - self.value
            times = ((end - self.value) / gap) ** 2 if gap else math.inf
        return math.ceil(round(self.n * (times - 1), 6)) if times <= MOST_TIMES else None


def measured(
    row: Mapping[str, Any],
    scores: pd.DataFrame,
    *,
    limit: float,
    keys: set[str],
    attacks: int,
    recorded: int | None = None,
) -> Iterator[Measured]:
    """An attack's mean over clients, and that of each of its rounds whose mean is beyond the limit.

    Args:
        row: its row of results.
        scores: scores of all attacks.
        limit: limit in the units of `Measured`.
        keys: settings that differ between results.
        attacks: number of attacks and settings that are held against the limit.
        recorded: number of clients of the recording, where the limit is about these clients; None where it is about
            clients like these.
    """
    entry = metric(row["metric"])
    sign = entry.sign
    setting = describe(setting_of(row), keys)
    label = f"{row['attack']} in {setting}" if setting else str(row["attack"])
    if entry.worst_client:
        yield _worst_client(row, scores, label, sign)
        return
    attack_scores = rows_of(scores, row)
    n = int(row["n"])
    enough = n >= FEWEST or recorded is not None
    if attack_scores.empty:  # results without their scores have the ends for one test
        safe, leaky = sorted((sign * row["low"], sign * row["high"]))
        yield Measured(label, sign * row["mean"], safe, leaky, n, enough)
        return
    of_clients = sign * crossed(attack_scores).mean(axis=1)
    doubt = hidden(of_clients, limit=limit, tests=attacks, binary=entry.binary, sign=sign)
    not_drawn = None if recorded is None else 1 - attack_scores["victim"].nunique() / recorded
    yield _of_mean(label, attack_scores, sign, attacks, not_drawn, n, doubt)
    yield from _rounds(attack_scores, label, sign, limit, attacks, not_drawn)


def _of_mean(
    label: str, scores: pd.DataFrame, sign: int, tests: int, not_drawn: float | None, n: int, doubt: str | None
) -> Measured:
    """Mean over clients of some scores, whose end further from the leak is for so many tests.

    `not_drawn` is the share of the clients of the recording that were not attacked, where the limit is about these
    clients; None where it is about clients like these.
    """
    mean = mean_over_clients(scores)
    mean = mean if sign > 0 else -mean
    if not_drawn is None:
        safe, leaky = mean.ends(low_tests=tests)
    else:
        safe, leaky = mean.ends_of_recording(not_drawn, low_tests=tests)
    enough = n >= FEWEST or not_drawn is not None
    whole = not_drawn is not None and not_drawn <= 0
    return Measured(label, mean.mean, safe, leaky, n, enough, doubt, whole=whole, mean=mean, tests=tests)


def _rounds(
    scores: pd.DataFrame, label: str, sign: int, limit: float, attacks: int, not_drawn: float | None
) -> Iterator[Measured]:
    """Rounds whose mean over clients is beyond the limit, where clients have values of their own.

    Of the clients of a round, as many were attacked as of all clients of the recording.
    """
    rounds = scores["round"].nunique()
    if rounds < 2 or scores["influence"].notna().any():
        return
    for number, of_round in scores.groupby("round"):
        values = sign * crossed(of_round).mean(axis=1).dropna()
        if len(values) and values.mean() > limit:
            doubt = "one round is beyond the limit"
            in_round = f"{label} in round {number}"
            yield _of_mean(in_round, of_round, sign, attacks * rounds, not_drawn, len(values), doubt)


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
    if stats.binom.sf(len(beyond) - 1, len(known), alike) >= TAIL / tests:
        return None
    # A message names nobody: a mean of few clients is nearly their own values, and with the mean over all it gives
    # that of the others.
    others = len(known) - len(beyond)
    shown = len(beyond) >= FEWEST and (others == 0 or others >= FEWEST)
    mean = f", {sign * float(beyond.mean()):.3f} on average" if shown else ""
    return f"{len(beyond)} of {len(known)} clients are beyond the limit{mean}, unlike the others"


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
