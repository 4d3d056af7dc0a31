"""Lower bounds of epsilon at another delta and for another number of rounds than those of the audit."""

import math
from collections.abc import Mapping
from typing import Any

from fedleak.core.epsilon_bounds import GAUSSIAN, clopper_pearson_epsilon, one_run_epsilon
from fedleak.core.errors import ViewError
from fedleak.core.gaussian_budget import declared_precision, gaussian_epsilon


def bound_at(row: Mapping[str, Any], delta: float, rounds: int | None) -> float:
    """Lower bound of epsilon of a row of `CanaryEstimate`, for a declaration with another delta, of some or all rounds.

    A bound over no more rounds than the declaration covers is one over those. Of more rounds, those in which most is
    lost have at least their share of the Gaussian bound's precision.

    Raises:
        ViewError: the bound does not compare with such a declaration, because of its delta or rounds.
    """
    name = str(row["bound"])
    share = 1.0
    if rounds is not None:
        share = min(rounds / row["rounds"], 1.0)
    if name in GAUSSIAN:
        if delta == 0:
            raise ViewError("it is of a Gaussian mechanism, which has no delta of 0")
        return gaussian_at(float(row["epsilon at least"]), row["delta"], delta, share)
    # The other bounds say nothing of a part of the rounds.
    if share < 1:
        raise ViewError(f"it covers another number of rounds: {row['rounds']:.0f}, the declaration {rounds}")
    if name == "epsilon-cp":
        counts = (row[key] for key in ("hits", "positives", "alarms", "negatives"))
        return float(clopper_pearson_epsilon(*counts, delta=delta))
    return one_run_epsilon(int(row["right"]), int(row["guesses"]), int(row["canaries"]), delta=delta)


def gaussian_at(epsilon: float, delta: float, target_delta: float, share: float = 1.0) -> float:
    """Epsilon at another delta of the Gaussian mechanism that is (epsilon, delta)-private and no more.

    Both deltas are above 0; epsilon is infinite without noise. `share` is that of the composed mechanisms.
    """
    if target_delta == delta and share == 1:
        return epsilon
    # Epsilons of 0 and of infinity have the same precision, which no mechanism needs to be found for.
    precision = epsilon
    if 0 < epsilon < math.inf:
        precision = declared_precision(epsilon, delta)
    return gaussian_epsilon(precision * share, target_delta)
