"""Interval of a mean over clients that holds for few clients, for equal values, and for mixtures of 0 and 1."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.optimize import brentq

from fedleak.evaluation.upper_end import Values, upper_end, upper_end_of_others

TAIL = 0.025
"""Probability that an interval of 95% leaves out at each end."""
UNBOUNDED = (-math.inf, math.inf)
"""Span of a metric without a least and a largest value."""

MOST_TIMES = 1e4
"""How many times as many clients are too many to ask for."""


@dataclass(frozen=True)
class MeanOverClients:
    """Mean of a metric over clients, of which intervals for any number of tests are asked.

    The unit is the client, or a group of clients whose values depend on each other because they were sent the same
    model or items. The interval is about **clients like these**: whoever the same federation might have recruited. It
    is the union of those that apply:

    * Where the metric has a span, the bound of Gaffke, see `upper_end`. It asks nothing of the law of the values, and
      is that of Clopper and Pearson where all of them are at the ends of the span.
    * Where the metric has no span, a t interval.
    * Where clients affect each other's values (an AUC over people), a t interval of their influences as well.

    With several trainings, that of the mean over trainings (a t interval) is added: both are independent, so the
    squares of their distances from the mean add up. With one training the interval is about that training alone.

    Attributes:
        mean: the mean.
        values: ``(U,)`` mean value of each unit.
        sizes: ``(U,)`` number of clients of each unit.
        span: least and largest possible value of a client.
        trainings: ``(S,)`` mean of each training; empty for one.
        influences: ``(U,)`` influences of the units, whose mean may differ from `mean`; empty for none.

    References:
        [Zou08], for the sum of two independent parts.
    """

    mean: float
    values: Values
    sizes: Values
    span: tuple[float, float]
    trainings: Values
    influences: Values

    @classmethod
    def of_clients(cls, values: Values, span: tuple[float, float], sizes: Values | None = None) -> "MeanOverClients":
        """Mean over clients of one training who do not affect each other.

        Args:
            values: ``(V,)`` values of the clients, NaN where one has none.
            span: least and largest possible value.
            sizes: ``(V,)`` weight of each, e.g. its number of answers; None for equal ones.
        """
        weights = np.ones_like(values) if sizes is None else sizes
        has_value = ~np.isnan(values)
        values = values[has_value].astype(np.float64)
        weights = weights[has_value]
        nothing = np.empty(0)
        mean = float(np.average(values, weights=weights)) if len(values) else math.nan
        return cls(mean, values, weights, span, nothing, nothing)

    def minus(self, constant: float) -> "MeanOverClients":
        """The same mean less a constant, e.g. the value of guessing."""
        least, most = self.span
        return MeanOverClients(
            self.mean - constant,
            self.values - constant,
            self.sizes,
            (least - constant, most - constant),
            self.trainings - constant,
            self.influences - constant,
        )

    def __neg__(self) -> "MeanOverClients":
        """The mean of the negated values."""
        least, most = self.span
        return MeanOverClients(-self.mean, -self.values, self.sizes, (-most, -least), -self.trainings, -self.influences)

    def ends(self, low_tests: int = 1, high_tests: int = 1) -> tuple[float, float]:
        """Lower and upper end, each one-sided at 97.5% for so many tests together (Bonferroni)."""
        # The lower end is minus the upper end of the negated values.
        low = -(-self)._upper_end(TAIL / low_tests)
        return low, self._upper_end(TAIL / high_tests)

    def ends_of_recording(self, not_drawn: float, low_tests: int = 1, high_tests: int = 1) -> tuple[float, float]:
        """Ends of the mean over all clients of a recording, of which these were drawn without replacement.

        What is unknown is the mean of the clients that were not drawn, see `upper_end_of_others`. A t interval shrinks
        with the root of their share. With all clients drawn the mean is a fact: both ends are the mean.

        Args:
            not_drawn: share of the clients of the recording that were not drawn, from 0 to 1.
            low_tests: see `ends`.
            high_tests: see `ends`.

        References:
            [Cochran77], section 2.6, for t.
        """
        if not_drawn <= 0:
            return self.mean, self.mean
        low = -(-self)._upper_end(TAIL / low_tests, not_drawn=not_drawn)
        return low, self._upper_end(TAIL / high_tests, not_drawn=not_drawn)

    def times_that_decide(self, limit: float, low_tests: int = 1, high_tests: int = 1) -> float:
        """How many times as many clients, of the same values in the same shares, have an interval that ends at a limit.

        Infinite where more than `MOST_TIMES` times as many have not.

        Args:
            limit: limit, beyond which one end of the interval is now.
            low_tests: see `ends`.
            high_tests: see `ends`.
        """
        if limit < self.mean:
            return (-self).times_that_decide(-limit, high_tests, low_tests)

        def beyond(logarithm: float) -> float:
            return self._upper_end(TAIL / high_tests, times=math.exp(logarithm)) - limit

        # The root is sought in the logarithm of the times, from once as many to MOST_TIMES as many.
        most = math.log(MOST_TIMES)
        if not beyond(most) <= 0:
            return math.inf
        if not beyond(0.0) > 0:
            return 1.0
        return math.exp(brentq(beyond, 0.0, most, xtol=1e-3))

    def _upper_end(self, tail: float, *, not_drawn: float = 1.0, times: float = 1.0) -> float:
        """Upper end for one tail.

        Args:
            tail: probability that the mean is above it.
            not_drawn: see `ends_of_recording`; 1 for clients like these, of whom there are infinitely many.
            times: how many times each client counts.
        """
        mean, most = self.mean, self.span[1]
        if not math.isfinite(mean):  # no client has a value, or one has an infinite one
            return mean
        # Clients that were drawn are known, so only the mean of the rest can be at the largest value.
        most_of_all = (1 - not_drawn) * mean + not_drawn * most
        # A t interval shrinks with sqrt(1 - n/N) for a recording, and with 1/sqrt(times) for more clients.
        shrunk = math.sqrt(not_drawn / times)
        if not math.isfinite(most):
            end = mean + shrunk * _half_of_t(self.values, tail)
        elif not_drawn < 1:
            # N - n of the N clients were not drawn, where n have a value; the end is that of the mean of all N.
            rest = max(round(len(self.values) * not_drawn / (1 - not_drawn)), 1)
            end_of_rest = upper_end_of_others(self.values, most, tail, rest, sizes=self.sizes)
            end = (1 - not_drawn) * mean + not_drawn * end_of_rest
        else:
            end = upper_end(self.values, most, tail, sizes=self.sizes, times=times)
        # Where clients affect each other's values, the wider of both intervals.
        if len(self.influences):
            end = max(end, mean + shrunk * _half_of_t(self.influences, tail))
        # Distances over clients and over trainings are independent, so their squares add up.
        if len(self.trainings):
            end = mean + math.hypot(end - mean, math.sqrt(not_drawn) * _half_of_t(self.trainings, tail))
        return max(mean, min(end, most_of_all))


def _half_of_t(values: Values, tail: float) -> float:
    """Distance from the mean to the end of a t interval; infinite for fewer than two values."""
    if len(values) < 2:
        return math.inf
    return float(stats.t.isf(tail, len(values) - 1)) * float(values.std(ddof=1)) / math.sqrt(len(values))
