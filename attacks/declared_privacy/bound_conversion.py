"""Lower bounds from canaries at the delta and the number of rounds of a declaration."""

import math
from collections.abc import Mapping
from typing import Any

from attacks.declared_privacy.epsilon_bounds import clopper_pearson_epsilon, one_run_epsilon
from protocol.errors import ViewError
from protocol.gaussian_budget import declared_precision, gaussian_epsilon

GAUSSIAN = ("epsilon-gdp", "epsilon-one-run-fdp")
"""Bounds of a Gaussian mechanism, which are known at every delta above 0 and for every number of equal rounds."""


def bound_at(row: Mapping[str, Any], delta: float, rounds: int | None) -> float:
    """Lower bound of epsilon of a row of `CanaryEstimate`, for a declaration with another delta, of some or all rounds.

    A bound over no more rounds than the declaration covers is one over those. Of more rounds, those in which most is
    lost have at least their share of the Gaussian bound's precision.

    Raises:
        ViewError: the bound does not compare with such a declaration, because of its delta or rounds.
    """
    name, share = str(row["bound"]), 1.0 if rounds is None else min(rounds / row["rounds"], 1.0)
    if name in GAUSSIAN:
        if delta == 0:
            raise ViewError("it is of a Gaussian mechanism, which has no delta of 0")
        return gaussian_at(float(row["epsilon at least"]), row["delta"], delta, share)
    if share < 1:
        raise ViewError(f"it covers another number of rounds: {row['rounds']:.0f}, the declaration {rounds}")
    if name == "epsilon-cp":
        counts = (row[key] for key in ("hits", "positives", "alarms", "negatives"))
        return float(clopper_pearson_epsilon(*counts, delta=delta))
    return one_run_epsilon(int(row["right"]), int(row["guesses"]), int(row["canaries"]), delta=delta)


def gaussian_at(epsilon: float, delta: float, other: float, share: float = 1.0) -> float:
    """Epsilon at another delta of the Gaussian mechanism that is (epsilon, delta)-private and no more.

    Both deltas are above 0; epsilon is infinite without noise. `share` is that of the composed mechanisms.
    """
    if other == delta and share == 1:
        return epsilon
    precision = declared_precision(epsilon, delta) if 0 < epsilon < math.inf else epsilon
    return gaussian_epsilon(precision * share, other)
