"""A value that a gate holds against a limit, and what a mean of clients' values hides."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from fedleak.evaluation.labels import attack_in_words
from fedleak.evaluation.limits import FEWEST, MOST_UNSCORED
from fedleak.evaluation.mean_interval import MOST_TIMES, TAIL, MeanOverClients

_TO_NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""


@dataclass(frozen=True)
class AttackInSetting:
    """What a value is of: an attack in a setting, over all rounds or in one."""

    attack: str
    setting: Mapping[str, Any] = field(default_factory=dict)
    round: int | None = None

    @property
    def text(self) -> str:
        """The attack and its setting in words."""
        return attack_in_words(self.attack, self.setting, self.round)


@dataclass(frozen=True)
class LimitedValue:
    """Value of one attack in one setting, in units in which a limit is exceeded from below: the metric times its sign.

    Attributes:
        measured_by: attack, with its setting if there are several, and its round.
        value: mean over clients, or value of the worst client.
        safe: end of the interval that is further from the leak, one-sided at 97.5% for all attacks and rounds together.
        leaky: end that is nearer to it, one-sided at 97.5%; infinite if a client that could be the worst has no value.
        n: number of clients.
        enough: whether there are enough clients to decide.
        doubt: why it does not pass, although the interval is on the safe side of the limit; None for no reason.
        about: what the value is made of, for the message; empty for the attack's own metric.
        excuse: why it does not fail, although the whole interval is beyond the limit; None for no reason.
        is_fact: whether the mean is a fact: all clients of the recording that the limit is about were attacked, or a
            change is 0 for every client.
        mean: mean of which the ends are, None where they are not made of one.
        tests: number of tests together for which `safe` is.
    """

    measured_by: AttackInSetting
    value: float
    safe: float
    leaky: float
    n: int
    enough: bool
    doubt: str | None = None
    about: str = ""
    excuse: str | None = None
    is_fact: bool = False
    mean: MeanOverClients | None = None
    tests: int = 1

    def more_clients(self, signed_bound: float) -> int | None:
        """About how many more clients would decide, if they are like these; None for no number.

        Without a mean, the distance of an end from it is taken to shrink with the root of the number of clients.
        """
        if self.mean is not None:
            times = self.mean.times_that_decide(signed_bound, low_tests=self.tests)
        else:
            end = self.safe if self.value > signed_bound else self.leaky
            gap = signed_bound - self.value
            # |end - value| shrinks with sqrt(n): at n times (|end - value| / gap)^2 clients the end is at the limit.
            times = ((end - self.value) / gap) ** 2 if gap else math.inf
        if times > MOST_TIMES:
            return None
        # Rounded first, so that the last digits of a whole number make no client more.
        return math.ceil(round(self.n * (times - 1), 6))


@dataclass(frozen=True)
class AgainstLimit:
    """Values that a limit is held against.

    Attributes:
        values: the values.
        left_out: what a limit on differences says nothing about; empty for nothing.
    """

    values: Sequence[LimitedValue]
    left_out: str = ""


def hidden(values: "pd.Series[float]", *, limit: float, tests: int, binary: bool, sign: int = 1) -> str | None:
    """What the mean of clients' values hides: clients without a value, or some beyond the limit unlike the others.

    The others' spread about their median says how many clients would be beyond the limit if all were alike; the
    binomial distribution, whether more are.

    Args:
        values: ``(P,)`` values in the units of `LimitedValue`, NaN where a client has none.
        limit: limit in the same units.
        tests: number of attacks and settings that are held against the limit.
        binary: whether a single value is 0 or 1, so that values are never alike.
        sign: factor from these units to those of the metric.
    """
    people = len(values)
    client_values = values.dropna().to_numpy()
    without_value = people - len(client_values)
    if without_value > MOST_UNSCORED * people:
        return f"{without_value} of {people} clients have no value"
    beyond = client_values[client_values > limit]
    if binary or not len(beyond):
        return None
    # If all clients were alike, a normal law about their median would have this share of them beyond the limit:
    # sf((limit - median) / spread), with the spread from the median absolute deviation, which outliers do not move.
    median = float(np.median(client_values))
    spread = _TO_NORMAL * float(np.median(np.abs(client_values - median)))
    share_if_alike = float(stats.norm.sf((limit - median) / spread)) if spread else float(median > limit)
    # P(at least as many beyond the limit) of the binomial law; a small one shows that some clients are unlike the rest.
    if stats.binom.sf(len(beyond) - 1, len(client_values), share_if_alike) >= TAIL / tests:
        return None
    # A message names nobody: a mean of few clients is nearly their own values, and with the mean over all it gives
    # that of the rest.
    within = len(client_values) - len(beyond)
    mean = ""
    if len(beyond) >= FEWEST and (within == 0 or within >= FEWEST):
        mean = f", {sign * float(beyond.mean()):.3f} on average"
    return f"{len(beyond)} of {len(client_values)} clients are beyond the limit{mean}, unlike the others"
