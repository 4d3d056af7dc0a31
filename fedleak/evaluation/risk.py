"""Quantities of risk that a mean hides: rates at one threshold, the worst tenth of clients, and people exposed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import bootstrap

from fedleak.core.keyed_numbers import keyed_number
from fedleak.core.metric_table import metric
from fedleak.evaluation.limits import FEWEST
from fedleak.evaluation.mean_interval import MeanOverClients
from fedleak.evaluation.paired_means import crossed
from fedleak.evaluation.range import Range

if TYPE_CHECKING:
    from fedleak.core.estimates import Candidates


@dataclass(frozen=True)
class OperatingPoint:
    """Rates of the decision to accept every candidate whose score reaches one threshold.

    Attributes:
        asks: question about one candidate.
        allowed: largest false-positive rate allowed.
        fpr: share of the false candidates that are accepted.
        tpr: share of the true candidates that are accepted.
        threshold: smallest score that is accepted; infinite if none can be.
        candidates: number of candidates.
        positives: number of the true ones.
        clients: number of clients that the candidates are about.
    """

    asks: str
    allowed: float
    fpr: Range
    tpr: Range
    threshold: float
    candidates: int
    positives: int
    clients: int


def operating_point(candidates: Candidates, allowed: float) -> OperatingPoint | None:
    """Highest true-positive rate with a false-positive rate of at most `allowed`, on the exact ROC curve.

    Of several thresholds with that true-positive rate it is the highest. All candidates of all clients share one
    threshold, and tied scores are accepted together, so the realised false-positive rate may be lower. The threshold is
    fixed, and the intervals are over clients, each of whom counts by the number of its candidates, see
    `fedleak.evaluation.mean_interval`.

    There is none without a true or without a false candidate.
    """
    scores = candidates.scores.double().numpy()
    labels = candidates.labels.numpy().astype(bool)
    positives = int(labels.sum())
    negatives = int((~labels).sum())
    if not positives or not negatives:
        return None
    # Candidates accepted at each threshold, the highest score first.
    thresholds, rank = np.unique(-scores, return_inverse=True)
    false = np.bincount(rank[~labels], minlength=len(thresholds)).cumsum()
    true = np.bincount(rank[labels], minlength=len(thresholds)).cumsum()
    # The last threshold whose false-positive rate is allowed, or -1; then the highest with as many true ones.
    reached = int(np.searchsorted(false / negatives, allowed, side="right")) - 1
    if reached >= 0:
        reached = int(np.searchsorted(true, true[reached]))
    accepted = rank <= reached
    owners, owner = np.unique(candidates.owners.numpy(), return_inverse=True)

    def rate(of: NDArray[np.bool_]) -> Range:
        """Share of some candidates that are accepted, over the clients who have such."""
        hits = np.bincount(owner[of & accepted], minlength=len(owners)).astype(np.float64)
        counts = np.bincount(owner[of], minlength=len(owners)).astype(np.float64)
        hits = hits[counts > 0]
        counts = counts[counts > 0]
        mean = MeanOverClients.of_clients(hits / counts, (0.0, 1.0), sizes=counts)
        low, high = mean.ends()
        return Range(mean.mean, low, high)

    return OperatingPoint(
        asks=candidates.asks,
        allowed=allowed,
        fpr=rate(~labels),
        tpr=rate(labels),
        threshold=float(-thresholds[reached]) if reached >= 0 else math.inf,
        candidates=len(scores),
        positives=positives,
        clients=len(owners),
    )


def worst_clients(rows: pd.DataFrame) -> pd.Series[float]:
    """Means of the tenth of the clients about whom most is inferred, by client number, the worst first.

    Of few clients, they are `FEWEST`, because a mean over fewer is about as good as their own values, which may name
    them; and all clients, if the others were fewer: with the mean over all, theirs would be known as well.

    Args:
        rows: scores of one line, setting and metric.
    """
    clients = crossed(rows).mean(axis=1).dropna()
    lower = len(clients) > 0 and metric(str(rows["metric"].iloc[0])).lower_is_better
    # A tenth, at least FEWEST, and all if fewer than FEWEST would be left.
    count = max(FEWEST, math.ceil(len(clients) / 10))
    if len(clients) < count + FEWEST:
        count = len(clients)
    return clients.sort_values(ascending=lower, kind="stable").head(count)


def worst_in_words(worst: pd.Series[float], clients: int) -> str:
    """What the clients of `worst_clients` are of a number of clients.

    >>> worst_in_words(pd.Series([0.9] * 5), 50)
    'worst tenth of the clients'
    """
    if len(worst) == math.ceil(clients / 10):
        return "worst tenth of the clients"
    return f"{len(worst)} most exposed clients"


def worst_tenth(rows: pd.DataFrame, *, seed: int = 0) -> Range | None:
    """Mean over the worst tenth of the clients, see `worst_clients`; None if no client has a value.

    The interval resamples clients, and takes the worst tenth of each resample. Which clients are the worst is chosen by
    the same values, so guessing has a worst tenth above its mean too: compare with that of a baseline.
    """
    count = len(worst_clients(rows))
    if not count:
        return None
    clients = crossed(rows).mean(axis=1).dropna().to_numpy()
    lower = metric(str(rows["metric"].iloc[0])).lower_is_better

    def mean_of_worst(values: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        ordered = np.sort(values, axis=axis)
        worst = ordered[..., :count] if lower else ordered[..., -count:]
        return np.asarray(worst.mean(axis=axis))

    value = float(mean_of_worst(clients, -1))
    low = high = value
    # Equal values have no spread to resample.
    if np.ptp(clients) > 0:
        resampled = bootstrap(
            (clients,),
            mean_of_worst,
            n_resamples=2000,
            batch=max(1, 2**20 // len(clients)),  # the memory of a batch is bounded
            method="percentile",
            rng=np.random.default_rng(keyed_number(seed, "worst-tenth")),
        )
        low = float(resampled.confidence_interval.low)
        high = float(resampled.confidence_interval.high)
    return Range(value, low, high)
