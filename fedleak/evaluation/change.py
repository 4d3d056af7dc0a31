"""One difference between two runs: the mean of an attack in one minus that in the other, with its interval."""

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
CHANGE: tuple[str, ...] = (
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
            G. Y. Zou and A. Donner, "Construction of confidence limits about effect measures: a general approach",
            Statistics in Medicine, 2008: the interval of a difference of independent means from theirs.
        """
        if self.gaps is not None:
            return self.parts[0].ends(low_tests, high_tests)
        before, after = self.parts
        # The lower end needs the lower end of the run and the upper one of the reference, and the reverse.
        run_low, run_high = after.ends(low_tests, high_tests)
        reference_low, reference_high = before.ends(high_tests, low_tests)
        low = self.change - math.hypot(after.mean - run_low, reference_high - before.mean)
        high = self.change + math.hypot(run_high - after.mean, before.mean - reference_low)
        least, most = metric(self.metric).span or (-math.inf, math.inf)
        return max(low, least - most), min(high, most - least)

    @property
    def verdict(self) -> Direction:
        """Whether more or less is inferred than in the reference, by the whole interval; equal for every client."""
        if self.same:
            return "equal"
        low, high = sorted(self.sign * end for end in self.ends())
        # A difference of infinite means is no number.
        if self.n < FEWEST or not (low > 0 or high < 0):
            return "undecided"
        return "more" if low > 0 else "less"

    def row(self) -> dict[str, Any]:
        """Row of a table, with columns `CHANGE` and the settings."""
        fields = {one.name: getattr(self, one.name) for one in dataclasses.fields(self) if one.name in CHANGE}
        low, high = self.ends()
        return {**fields, "low": low, "high": high, "paired": self.gaps is not None, "verdict": self.verdict} | {
            **self.setting
        }


def change(old: pd.DataFrame, new: pd.DataFrame, info: AttackInfo, *, alike: bool, best: bool = False) -> Change:
    """Difference between the scores of one attack, metric and setting in a run and in the reference.

    Args:
        old: scores in the reference, see `fedleak.evaluation.scores.SCHEMA`.
        new: scores in the run.
        info: description of the attack in the run.
        alike: whether a client has the same number in both.
        best: see `Change`.
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
        if min(old["seed"].nunique(), new["seed"].nunique()) > 1:
            alike = False  # several other trainings: the spread over those of each side counts
        else:
            old, new = old.assign(seed=0), new.assign(seed=0)  # one training a side: its values by client
    if alike and (found := _paired(old, new)) is not None:
        return Change(**fixed, **found)
    return Change(**fixed, **_independent(old, new))


def _independent(old: pd.DataFrame, new: pd.DataFrame) -> dict[str, Any]:
    """Numbers of a `Change` of which the clients cannot be paired."""
    means = mean_over_clients(old), mean_over_clients(new)
    tables = [crossed(scores).notna() for scores in (old, new)]
    clients = min(int(known.any(axis=1).sum()) for known in tables)
    trainings = min(int(known.any(axis=0).sum()) for known in tables)
    before, after = (mean.mean for mean in means)
    numbers = {"reference": before, "value": after, "change": after - before}
    return {**numbers, "n": clients, "seeds": trainings, "same": False, "parts": means, "gaps": None}


def _paired(old: pd.DataFrame, new: pd.DataFrame) -> dict[str, Any] | None:
    """Numbers of a `Change` on the clients that both have; None if these are too few."""
    known = [{*rows["person"][rows["value"].notna()]} for rows in (old, new)]
    if len(known[0] & known[1]) < min(FEWEST, *map(len, known)):
        return None
    difference, gaps, _ = paired(new, old)
    if gaps.empty:
        return None
    values = [crossed(scores).sort_index().sort_index(axis=1) for scores in (old, new)]
    common = [table.reindex(index=gaps.index, columns=gaps.columns).where(gaps.notna()) for table in values]
    before, after = (float(np.nanmean(table.to_numpy())) for table in common)
    numbers = {"reference": before, "value": after, "change": difference.mean}
    clients, trainings = gaps.shape
    of_clients = gaps.mean(axis=1)
    same = values[0].equals(values[1])
    return {**numbers, "n": clients, "seeds": trainings, "same": same, "parts": (difference,), "gaps": of_clients}
