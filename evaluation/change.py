"""One difference between two runs: the mean of an attack in one minus that in the other, with its interval."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd

from attacks.scoring import clopper_pearson
from evaluation.limits import FEWEST, wider
from evaluation.runner import Evaluation
from evaluation.scores import AttackInfo, records, setting_columns
from evaluation.summary import clusters, crossed, paired, summarise
from protocol.metric_table import metric

Direction = Literal["more", "less", "equal", "undecided"]
CHANGE: tuple[str, ...] = (
    *("question", "family", "best", "attack", "reference_attack", "metric", "reference", "value"),
    *("change", "low", "high", "n", "seeds", "paired", "verdict"),
)
"""Columns of a table of changes, in addition to its settings."""


@dataclass(frozen=True)
class Interval:
    """A mean with the ends of its bootstrap interval.

    Attributes:
        mean: the mean.
        low: lower end.
        high: upper end.
        units: number of clients, or of what was resampled instead of them; None for an exact interval.
    """

    mean: float
    low: float
    high: float
    units: int | None

    def ends(self, tests: int = 1) -> tuple[float, float]:
        """Ends of half a t interval for several tests to each side, see `evaluation.limits.wider`."""
        if self.units is None:
            return self.low, self.high
        if self.units < 2:
            return -math.inf, math.inf
        factor = wider(self.units, tests)
        return self.mean - (self.mean - self.low) * factor, self.mean + (self.high - self.mean) * factor


@dataclass(frozen=True)
class Change:
    """Difference between two runs: the mean of an attack in one minus that in the reference.

    Attributes:
        question: what the server infers, in words.
        family: family of the attack.
        best: whether the attacks are the best of a question in either run; otherwise they have the same label.
        attack: label of the attack.
        reference_attack: label of the attack in the reference.
        metric: metric.
        setting: columns of the setting that both have.
        reference: mean in the reference.
        value: mean in the run.
        change: difference; of the clients that both runs have if it is paired.
        n: number of clients, the smaller one of both runs if it is not paired.
        seeds: number of seeds that both have.
        parts: intervals of which that of the difference is made: its own, or those of the reference and of the run.
        gaps: ``(P,)`` differences of clients; None if they are not paired.
    """

    question: str
    family: str
    best: bool
    attack: str
    reference_attack: str
    metric: str
    setting: Mapping[str, Any]
    reference: float
    value: float
    change: float
    n: int
    seeds: int
    parts: tuple[Interval, ...]
    gaps: "pd.Series[float] | None" = field(repr=False)

    @property
    def sign(self) -> int:
        """1 if more of the metric is more leakage, -1 if less is."""
        return -1 if metric(self.metric).lower_is_better else 1

    def ends(self, low_tests: int = 1, high_tests: int = 1) -> tuple[float, float]:
        """Ends of the 95% interval of the difference, each for a number of tests.

        References:
            G. Y. Zou and A. Donner, "Construction of confidence limits about effect measures: a general approach",
            Statistics in Medicine, 2008: the interval of a difference of independent means from theirs.
        """
        low, high = self.parts[-1].ends(low_tests)[0], self.parts[-1].ends(high_tests)[1]
        if self.gaps is None:
            before, after = self.parts
            low = self.change - math.hypot(after.mean - low, before.ends(low_tests)[1] - before.mean)
            high = self.change + math.hypot(high - after.mean, before.mean - before.ends(high_tests)[0])
        span = metric(self.metric).span or (-math.inf, math.inf)
        return max(low, span[0] - span[1]), min(high, span[1] - span[0])

    @property
    def verdict(self) -> Direction:
        """Whether more or less is inferred than in the reference, by the whole interval; equal for every client."""
        low, high = sorted(self.sign * end for end in self.ends())
        if self.gaps is not None and not self.gaps.any():
            return "equal"
        if self.n < FEWEST or low <= 0 <= high:
            return "undecided"
        return "more" if low > 0 else "less"

    def row(self) -> dict[str, Any]:
        """Row of a table, with columns `CHANGE` and the settings."""
        fields = {one.name: getattr(self, one.name) for one in dataclasses.fields(self) if one.name in CHANGE}
        low, high = self.ends()
        return {**fields, "low": low, "high": high, "paired": self.gaps is not None, "verdict": self.verdict} | {
            **self.setting
        }


def change(
    old: pd.DataFrame, new: pd.DataFrame, info: AttackInfo, *, alike: bool, best: bool = False, seed: int = 0
) -> Change:
    """Difference between the scores of one attack, metric and setting in a run and in the reference.

    Args:
        old: scores in the reference, see `evaluation.scores.SCHEMA`.
        new: scores in the run.
        info: description of the attack in the run.
        alike: whether a client has the same number in both.
        best: see `Change`.
        seed: seed of the resamples.
    """
    settings = {name: new[name].iloc[0] for name in setting_columns(new)}
    fixed: dict[str, Any] = {
        "question": info.tells or str(info.question),
        "family": str(info.family),
        "best": best,
        "attack": str(new["attack"].iloc[0]),
        "reference_attack": str(old["attack"].iloc[0]),
        "metric": str(new["metric"].iloc[0]),
        "setting": {name: value for name, value in settings.items() if value is not None},
    }
    if alike and not {*old["seed"]} & {*new["seed"]}:
        old, new = old.assign(seed=0), new.assign(seed=0)  # of other trainings or draws: their means by client
    if alike and (found := _paired(old, new, seed)) is not None:
        return Change(**fixed, **found)
    return Change(**fixed, **_independent(old, new))


def _independent(old: pd.DataFrame, new: pd.DataFrame) -> dict[str, Any]:
    """Numbers of a `Change` of which the clients cannot be paired."""
    rows, parts = [], []
    for scores in (old, new):
        row, groups = (
            records(summarise(Evaluation(scores=scores.drop(columns=setting_columns(scores)))))[0],
            clusters(scores),
        )
        exact = metric(row["metric"]).binary and row["mean"] in (0.0, 1.0)
        units = None if exact else int(row["n"]) if groups is None else groups.nunique()
        parts.append(Interval(row["mean"], row["low"], row["high"], units))
        rows.append(row)
    least = {count: min(int(row[count]) for row in rows) for count in ("n", "seeds")}
    before, after = (part.mean for part in parts)
    numbers = {"reference": before, "value": after, "change": after - before}
    return {**numbers, **least, "parts": tuple(parts), "gaps": None}


def _paired(old: pd.DataFrame, new: pd.DataFrame, seed: int) -> dict[str, Any] | None:
    """Numbers of a `Change` on the clients that both have; None if these are too few."""
    known = [{*rows["person"][rows["value"].notna()]} for rows in (old, new)]
    if len(known[0] & known[1]) < min(FEWEST, *map(len, known)):
        return None
    own, gaps = paired_interval(new, old, seed=seed)
    if gaps.empty:
        return None
    values = [crossed(rows).reindex(index=gaps.index, columns=gaps.columns) for rows in (old, new)]
    means = [float(np.nanmean(one.where(gaps.notna()).to_numpy())) for one in values]
    numbers = {"reference": means[0], "value": means[1], "change": own.mean, "n": len(gaps), "seeds": gaps.shape[1]}
    return {**numbers, "parts": (own,), "gaps": gaps.mean(axis=1)}


def paired_interval(one: pd.DataFrame, two: pd.DataFrame, *, seed: int = 0) -> tuple[Interval, pd.DataFrame]:
    """Mean difference of two lines' scores on the same clients, the first minus the second, and the differences.

    Returns:
        The interval, that of Clopper and Pearson for a binary metric with the same difference for all clients; and
        ``(P, S)`` differences of clients by seed, which are empty if no client has both values.
    """
    summary, gaps, _ = paired(one, two, seed=seed)
    if gaps.empty:
        return Interval(math.nan, math.nan, math.nan, 0), gaps
    groups, of_clients = clusters(one), gaps.mean(axis=1)
    if metric(str(one["metric"].iloc[0])).binary and of_clients.nunique() == 1 and summary.mean in (-1.0, 0.0, 1.0):
        return Interval(summary.mean, *_of_alike(int(summary.mean), summary.n), None), gaps
    units = summary.n if groups is None else groups.reindex(gaps.index).nunique()
    return Interval(summary.mean, summary.low, summary.high, units), gaps


def _of_alike(gap: int, n: int) -> tuple[float, float]:
    """Interval of the mean difference of 0 or 1, which is the same for all `n` clients, by Clopper and Pearson."""
    least = clopper_pearson(n, n)[0]  # of the share of clients with this difference
    return {1: (2 * least - 1, 1.0), 0: (least - 1, 1 - least), -1: (-1.0, 1 - 2 * least)}[gap]
