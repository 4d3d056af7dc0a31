"""Quantities of risk that a mean hides: rates at one threshold, the worst tenth of clients, and people exposed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import bootstrap

from attacks.estimates import Candidates
from attacks.scoring import clopper_pearson
from evaluation.bootstrap import crossed_ratio
from evaluation.summary import crossed
from protocol.metric_table import metric
from protocol.seeding import generator_for

_TENTH = 0.1


@dataclass(frozen=True)
class Range:
    """A number with its 95% interval.

    Attributes:
        value: the number.
        low: lower end.
        high: upper end.
    """

    value: float
    low: float
    high: float

    def times(self, factor: float) -> "Range":
        """Number and interval times a positive factor."""
        return Range(self.value * factor, self.low * factor, self.high * factor)


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


def operating_point(candidates: Candidates, allowed: float, *, seed: int = 0) -> OperatingPoint | None:
    """Highest true-positive rate with a false-positive rate of at most `allowed`, on the exact ROC curve.

    Of several thresholds with that true-positive rate it is the highest. All candidates of all clients share one
    threshold, and tied scores are accepted together, so the realised false-positive rate may be lower. The threshold is
    fixed and clients are resampled for the intervals. Where all resamples agree on 0 or 1, the interval is that of
    Clopper and Pearson for as many trials as there are clients.

    Returns:
        None if there is no true or no false candidate.
    """
    scores, labels = candidates.scores.double().numpy(), candidates.labels.numpy().astype(bool)
    positives, negatives = int(labels.sum()), int((~labels).sum())
    if not positives or not negatives:
        return None
    thresholds, rank = np.unique(-scores, return_inverse=True)  # highest score first
    false = np.bincount(rank[~labels], minlength=len(thresholds)).cumsum()
    true = np.bincount(rank[labels], minlength=len(thresholds)).cumsum()
    reached = int(np.searchsorted(false / negatives, allowed, side="right")) - 1
    reached = int(np.searchsorted(true, true[reached])) if reached >= 0 else reached
    accepted = rank <= reached
    owners, owner = np.unique(candidates.owners.numpy(), return_inverse=True)

    def rate(of: NDArray[np.bool_], purpose: str) -> Range:
        hits, asked = (np.bincount(owner[kept], minlength=len(owners)) for kept in (of & accepted, of))
        pair = (torch.from_numpy(counts[asked > 0, None].astype(float)) for counts in (hits, asked))
        value, low, high = crossed_ratio(*pair, generator=generator_for(seed, purpose))
        if low == high and value in (0.0, 1.0):
            clients = int((asked > 0).sum())
            low, high = clopper_pearson(round(value * clients), clients)
        return Range(value, low, high)

    return OperatingPoint(
        *(candidates.asks, allowed, rate(~labels, "fpr"), rate(labels, "tpr")),
        threshold=float(-thresholds[reached]) if reached >= 0 else math.inf,
        candidates=len(scores),
        positives=positives,
        clients=len(owners),
    )


@dataclass(frozen=True)
class WorstTenth:
    """Mean of a metric over the tenth of the clients about whom most is inferred.

    Attributes:
        mean: mean over these clients.
        clients: their number, at least one.
    """

    mean: Range
    clients: int


def worst_tenth(rows: pd.DataFrame, *, seed: int = 0) -> WorstTenth | None:
    """Worst tenth by one attack's scores under one metric; None if no client has a value.

    The interval resamples clients, and takes the worst tenth of each resample. Which clients are the worst is chosen by
    the same values, so guessing has a worst tenth above its mean too: compare with that of a baseline.

    Args:
        rows: scores of one line, setting and metric.
        seed: seed of the resamples.
    """
    clients = crossed(rows).mean(axis=1).dropna().to_numpy()
    if not len(clients):
        return None
    count, lower = math.ceil(_TENTH * len(clients)), metric(str(rows["metric"].iloc[0])).lower_is_better

    def mean_of_worst(values: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        ordered = np.sort(values, axis=axis)
        return np.asarray((ordered[..., :count] if lower else ordered[..., -count:]).mean(axis=axis))

    value = float(mean_of_worst(clients, -1))
    low = high = value
    if np.ptp(clients) > 0:
        rng = np.random.default_rng(generator_for(seed, "worst-tenth").initial_seed())
        batch = max(1, 2**20 // len(clients))
        ends = bootstrap(
            (clients,), mean_of_worst, n_resamples=2000, batch=batch, method="percentile", rng=rng
        ).confidence_interval
        low, high = float(ends.low), float(ends.high)
    return WorstTenth(Range(value, low, high), count)


@dataclass(frozen=True)
class Exposure:
    """What one question about each of a number of people would give an adversary.

    Attributes:
        true: number of people of whom the answer is yes.
        exposed: number of these whom the attack names.
        wrong: number of the others whom it names.
        precision: share of the named for whom the answer is yes; None if nobody is named.
        lift: precision divided by the prior; None if nobody is named.
    """

    true: float
    exposed: Range
    wrong: Range
    precision: Range | None
    lift: Range | None


def exposure(tpr: Range, fpr: Range, *, people: int, prior: float) -> Exposure:
    """Exposure of people to a decision with measured rates.

    ``exposed = TPR * prior * people`` and ``precision = TPR * prior / (TPR * prior + FPR * (1 - prior))``. The
    precision's interval takes the unfavourable ends of both rates, so it covers at least 90%.

    Args:
        tpr: true-positive rate of the decision.
        fpr: false-positive rate.
        people: number of people.
        prior: share of them of whom the answer is yes.
    """
    true = people * prior

    def precision(tpr: float, fpr: float) -> float:
        named = tpr * prior + fpr * (1 - prior)
        return tpr * prior / named if named else math.nan

    right = None
    if tpr.value or fpr.value:
        right = Range(precision(tpr.value, fpr.value), precision(tpr.low, fpr.high), precision(tpr.high, fpr.low))
    wrong = fpr.times(people - true)
    return Exposure(true, tpr.times(true), wrong, right, right and right.times(1 / prior))


def rows_of(scores: pd.DataFrame, row: Mapping[str, object]) -> pd.DataFrame:
    """Scores behind a row of results: of its line, metric and setting."""
    kept = (scores["attack"] == row["attack"]) & (scores["metric"] == row["metric"])
    for name in (str(column) for column in scores.columns if str(column) in row and str(column).startswith("setting.")):
        kept &= scores[name].map(repr) == repr(row[name])
    return scores[kept]
