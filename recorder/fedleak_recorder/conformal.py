"""Thresholds of checks from their values on honest data: split conformal prediction, the same for all checks."""

import math
from typing import Any, NamedTuple

import numpy as np

from fedleak_recorder.arrays import Array, as_array
from fedleak_recorder.errors import require


class ConformalThresholds(NamedTuple):
    """Thresholds of several checks.

    Attributes:
        values: ``(K,)`` float64, largest value of each check that is no finding.
        false_alarms: bound on the probability that another honest value of at least one check exceeds its threshold.
    """

    values: Array
    false_alarms: float


def fewest_honest_values(checks: int, false_alarms: float) -> int:
    """Honest values that thresholds of several checks need at a joint rate: ``K / false_alarms - 1``, rounded up."""
    # Solved for n from K k / (n + 1) <= false_alarms with k = 1; rounded first, as 5 / 0.05 may be 100.00000000000001.
    return math.ceil(round(checks / false_alarms, 9)) - 1


def conformal_thresholds(
    honest: Any,
    false_alarms: float,
    *,
    largest: bool = False,
    margin: float = 1.0,
    unit: str = "rounds",
    way_out: str = "Calibrate on more, or allow more false alarms.",
) -> ConformalThresholds:
    """Thresholds that honest values exceed with a bounded probability.

    Let n honest values of a check and another honest one be exchangeable, as independent values of one law are. Then
    each place of the new one among the n + 1 is equally likely. It exceeds the k-th largest of the n only if it is
    among the k largest of the n + 1, which has probability ``k / (n + 1)``, and less where values are equal. One of K
    checks, which may depend on each other, exceeds its threshold with probability at most the sum,
    ``K k / (n + 1)`` (Bonferroni). Of all k for which that is at most `false_alarms`, the largest one,
    ``floor(false_alarms (n + 1) / K)``, gives the lowest thresholds, by which most manipulations are found.

    Two of the rules in use differ. Audits judge how well checks find manipulations at a given rate, and take that k.
    A site that refuses messages pays for each false alarm with its part in a training, and its honest rounds depend on
    each other; it takes k = 1 however many values there are (`largest`), and goes beyond by a margin, so that the
    probability is at most ``K / (n + 1)`` at a margin of 1 and smaller at a larger one.

    Args:
        honest: ``(n, K)`` values of K checks on honest data, or ``(n,)`` of one.
        false_alarms: largest acceptable bound, of all checks together.
        largest: whether thresholds are the largest honest values, in place of the lowest ones that keep the bound.
        margin: factor by which a threshold lies beyond an honest value, at least 1.
        unit: what has one value of each check, for errors.
        way_out: where more values come from, for errors.

    Raises:
        InputError: there are too few values for that bound.

    References:
        [Vovk05].

    Example:
        >>> import numpy as np
        >>> conformal_thresholds(np.arange(39), 0.05)  # the second largest of 39 values: 2 / 40
        ConformalThresholds(values=array([37.]), false_alarms=0.05)
        >>> conformal_thresholds(np.arange(39), 0.05, largest=True, margin=2)
        ConformalThresholds(values=array([76.]), false_alarms=0.025)
    """
    require(0 < false_alarms < 1, "a rate of false alarms between 0 and 1", f"{false_alarms:g}", "Use 0.05.")
    values = as_array(honest).astype(np.float64)
    if values.ndim == 1:
        values = values[:, None]
    count, checks = values.shape
    needed = fewest_honest_values(max(checks, 1), false_alarms)
    require(
        count >= needed and checks,
        f"at least {needed} honest {unit} for {checks} checks at a joint rate of {false_alarms:g}",
        count,
        way_out,
    )
    require(margin >= 1, "a margin of at least 1", margin, "Use 2.")
    # k = floor(false_alarms (n + 1) / K), as n + 1 less the rest, rounded before it is rounded up: 0.95 * 20 is
    # slightly more than 19 in binary.
    allowed = count + 1 - math.ceil(round((1 - false_alarms / checks) * (count + 1), 9))
    rank = 1 if largest else allowed  # k: the threshold is the k-th largest honest value
    limits = np.sort(values, axis=0)[count - rank]
    # By the absolute value, so that a threshold below 0 moves upwards too.
    limits = limits + (margin - 1) * np.abs(limits)
    return ConformalThresholds(limits, checks * rank / (count + 1))
