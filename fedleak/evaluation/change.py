"""Difference between two runs of one attack, metric and setting: the mean in one minus that in the reference."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd

from fedleak.core.metric_table import metric
from fedleak.evaluation.limits import FEWEST
from fedleak.evaluation.mean_interval import MeanOverClients
from fedleak.evaluation.paired_means import crossed, mean_over_clients, paired
from fedleak.evaluation.scores import AttackInfo, setting_columns

Direction = Literal["more", "less", "equal", "undecided"]
COLUMNS: tuple[str, ...] = (
    *("question", "family", "best", "attack", "reference_attack", "metric", "reference", "value"),
    *("change", "low", "high", "n", "seeds", "paired", "verdict"),
)
"""Columns of a table of changes, in addition to its settings."""


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
        same: whether every client has the same value in both for each seed, or in neither.
        parts: means of which the interval of the difference is made: its own, or those of the reference and of the run.
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
    same: bool
    parts: tuple[MeanOverClients, ...]
    gaps: "pd.Series[float] | None" = field(repr=False)

    @property
    def sign(self) -> int:
        """1 if more of the metric is more leakage, -1 if less is."""
        return metric(self.metric).sign

    def ends(self, low_tests: int = 1, high_tests: int = 1) -> tuple[float, float]:
        """Ends of the 95% interval of the difference, each for a number of tests.

        References:
            [Zou08]: the interval of a difference of independent means from theirs.
        """
        if self.gaps is not None:
            return self.parts[0].ends(low_tests, high_tests)
        before, after = self.parts
        # The lower end needs the lower end of the run and the upper one of the reference, and the reverse.
        run_low, run_high = after.ends(low_tests, high_tests)
        reference_low, reference_high = before.ends(high_tests, low_tests)
        # low = difference - sqrt((mean_run - low_run)^2 + (high_reference - mean_reference)^2), and high alike.
        low = self.change - math.hypot(after.mean - run_low, reference_high - before.mean)
        high = self.change + math.hypot(run_high - after.mean, before.mean - reference_low)
        # No difference of two values of a metric is larger than its span.
        least, most = metric(self.metric).span or (-math.inf, math.inf)
        return max(low, least - most), min(high, most - least)

    @property
    def verdict(self) -> Direction:
        """Whether more or less is inferred than in the reference, by the whole interval; equal for every client."""
        if self.same:
            return "equal"
        low, high = sorted(self.sign * end for end in self.ends())
        # A difference of infinite means is no number, and neither above 0 nor below.
        if self.n < FEWEST or not (low > 0 or high < 0):
            return "undecided"
        if low > 0:
            return "more"
        return "less"

    def row(self) -> dict[str, Any]:
        """Row of a table, with columns `COLUMNS` and the settings."""
        row: dict[str, Any] = {}
        for attribute in dataclasses.fields(self):
            if attribute.name in COLUMNS:
                row[attribute.name] = getattr(self, attribute.name)
        row["low"], row["high"] = self.ends()
        row["paired"] = self.gaps is not None
        row["verdict"] = self.verdict
        return {**row, **self.setting}


def change(old: pd.DataFrame, new: pd.DataFrame, info: AttackInfo, *, alike: bool, best: bool = False) -> Change:
    """Difference between the scores of one attack, metric and setting in a run and in the reference.

    Args:
        old: scores in the reference, see `fedleak.evaluation.scores.SCHEMA`.
        new: scores in the run.
        info: description of the attack in the run.
        alike: whether a client has the same number in both.
        best: see `Change`.
    """
    if alike and not {*old["seed"]} & {*new["seed"]}:
        if min(old["seed"].nunique(), new["seed"].nunique()) > 1:
            # Several other trainings: the spread over those of each side counts.
            alike = False
        else:
            # One training a side: its values by client.
            old = old.assign(seed=0)
            new = new.assign(seed=0)
    difference = _paired(old, new) if alike else None
    if difference is None:
        difference = _independent(old, new)
    settings = {name: new[name].iloc[0] for name in setting_columns(new)}
    return Change(
        question=info.tells or str(info.question),
        family=str(info.family),
        best=best,
        attack=str(new["attack"].iloc[0]),
        reference_attack=str(old["attack"].iloc[0]),
        metric=str(new["metric"].iloc[0]),
        setting={name: value for name, value in settings.items() if value is not None},
        reference=difference.reference,
        value=difference.value,
        change=difference.change,
        n=difference.n,
        seeds=difference.seeds,
        same=difference.same,
        parts=difference.parts,
        gaps=difference.gaps,
    )


@dataclass(frozen=True)
class _Difference:
    """The numbers of a `Change`."""

    reference: float
    value: float
    change: float
    n: int
    seeds: int
    same: bool
    parts: tuple[MeanOverClients, ...]
    gaps: "pd.Series[float] | None"


def _independent(old: pd.DataFrame, new: pd.DataFrame) -> _Difference:
    """The difference of two means of which the clients cannot be paired."""
    before = mean_over_clients(old)
    after = mean_over_clients(new)
    # Which clients (rows) have a value of which training (columns).
    has_value = [crossed(scores).notna() for scores in (old, new)]
    return _Difference(
        reference=before.mean,
        value=after.mean,
        change=after.mean - before.mean,
        n=min(int(table.any(axis=1).sum()) for table in has_value),
        seeds=min(int(table.any(axis=0).sum()) for table in has_value),
        same=False,
        parts=(before, after),
        gaps=None,
    )


def _paired(old: pd.DataFrame, new: pd.DataFrame) -> _Difference | None:
    """The mean difference over the clients that both have; None if these are too few."""
    old_people = {*old["person"][old["value"].notna()]}
    new_people = {*new["person"][new["value"].notna()]}
    # Enough clients are in both, or all of the smaller run.
    if len(old_people & new_people) < min(FEWEST, len(old_people), len(new_people)):
        return None
    difference, gaps, _ = paired(new, old)
    if gaps.empty:
        return None
    # Both means are over the values that are in a pair.
    old_values = crossed(old).sort_index().sort_index(axis=1)
    new_values = crossed(new).sort_index().sort_index(axis=1)
    old_in_pairs = old_values.reindex(index=gaps.index, columns=gaps.columns).where(gaps.notna())
    new_in_pairs = new_values.reindex(index=gaps.index, columns=gaps.columns).where(gaps.notna())
    clients, trainings = gaps.shape
    return _Difference(
        reference=float(np.nanmean(old_in_pairs.to_numpy())),
        value=float(np.nanmean(new_in_pairs.to_numpy())),
        change=difference.mean,
        n=clients,
        seeds=trainings,
        same=old_values.equals(new_values),
        parts=(difference,),
        gaps=gaps.mean(axis=1),
    )
