"""Results that follow from several cells: interactions needed for an error, and utility under a mitigation."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from evaluation.bootstrap import bootstrap
from evaluation.runner import Evaluation
from evaluation.scores import SETTING, Line, from_records, setting_columns
from evaluation.summary import described
from protocol.metrics import metric
from protocol.seeding import generator_for

AXIS = SETTING + "interactions"
MITIGATION, AMOUNT = SETTING + "mitigation", SETTING + "amount"
REFERENCES = (100, 1000, 10000)
"""Numbers of interactions of the published attack whose error the others must reach."""
MODEL = "global-model"
"""Label of the trained model, under which the metric of its own quality stands."""
DERIVED = ("interactions", "times-fewer", "utility")
"""Metrics of this module."""
_RESAMPLES = 1000
_NO_MITIGATION = "none"


def derived(evaluation: Evaluation) -> pd.DataFrame:
    """Derived results, with the columns of `evaluation.summary.summarise`; without rows where nothing follows.

    Args:
        evaluation: all scores, not only those of the metrics that are reported.
    """
    rows = [*_interactions_needed(evaluation), *_utilities(evaluation)]
    return described(from_records(rows), evaluation.lines) if rows else pd.DataFrame()


def _interactions_needed(evaluation: Evaluation, name: str = "error") -> Iterator[dict[str, Any]]:
    """After how many interactions each attack is as good as the published one after 100, 1,000 or 10,000.

    A mean curve is read between two points on a straight line in log T. The interval is a bootstrap over victims, in
    which both the goal and the curve are made anew. An attack that is as good at the first point has that point's T;
    one that never is has none. Cells of the metrics ``interactions`` (T needed) and ``times-fewer`` (how many times
    fewer that is).
    """
    scores = evaluation.scores
    if AXIS not in scores:
        return
    roles = scores["attack"].map(lambda label: evaluation.lines.get(label, Line()).role)
    curves = scores[(scores["metric"] == name) & scores[AXIS].notna() & roles.isin(["ours", "published"])]
    others = [column for column in setting_columns(scores) if column != AXIS]
    for _, group in curves.groupby(others, sort=False, dropna=False):
        published = group["attack"][roles[group.index] == "published"]
        if len(published):
            setting = {column: group[column].iloc[0] for column in others}
            yield from _crossings(group, str(published.iloc[0]), setting)


def _crossings(rows: pd.DataFrame, published: str, setting: dict[str, Any]) -> Iterator[dict[str, Any]]:
    curves, points = _victim_curves(rows)
    goals = curves.pop(published)
    victims = len(goals)
    generator = generator_for(0, "interactions-needed")
    draws = torch.randint(victims, (_RESAMPLES, victims), generator=generator)
    for reference in (r for r in REFERENCES if r in points.tolist()):
        at = points.tolist().index(reference)
        for attack, values in curves.items():
            needed = _needed(values.mean(0)[None], goals.mean(0)[None, at], points)
            again = _needed(values[draws].mean(1), goals[draws].mean(1)[:, at], points)
            common = {**setting, "attack": attack, SETTING + "as_pac_after": reference, "n": victims}
            yield {**common, "metric": "interactions", **_interval(needed[0], again)}
            yield {**common, "metric": "times-fewer", **_interval(reference / needed[0], reference / again)}


def _victim_curves(rows: pd.DataFrame) -> tuple[dict[str, Tensor], Tensor]:
    """By attack ``(V, T)`` means over a victim's repetitions, and ``(T,)``; of victims who have every point."""
    means = rows.groupby(["attack", "seed", "victim", rows[AXIS].astype(float)])["value"].mean().unstack()
    by_attack = {attack: means.loc[attack] for attack in dict.fromkeys(rows["attack"])}
    whole = [means.loc[attack].dropna().index for attack in by_attack]
    shared = whole[0]
    for index in whole[1:]:
        shared = shared.intersection(index)
    shared = shared.sort_values()
    curves = {attack: torch.from_numpy(own.loc[shared].to_numpy(copy=True)) for attack, own in by_attack.items()}
    return curves, torch.from_numpy(means.columns.to_numpy(dtype=np.float64, copy=True))


def _needed(curves: Tensor, goals: Tensor, points: Tensor) -> Tensor:
    """``(K,)`` where curves ``(K, T)`` first come down to goals ``(K,)``; infinite where they never do."""
    reached = curves <= goals[:, None]
    first = reached.int().argmax(1)
    before = (first - 1).clamp(min=0)
    high, low = (curves.gather(1, place[:, None])[:, 0] for place in (before, first))
    share = ((high - goals) / (high - low).clamp(min=1e-300)).clamp(0, 1)
    logs = points.log()
    value = torch.exp(logs[before] + share * (logs[first] - logs[before]))
    value = torch.where(first == 0, points[0], value)
    return torch.where(reached.any(1), value, torch.inf)


def _interval(value: Tensor, again: Tensor) -> dict[str, Any]:
    """The numbers of a cell; what is infinitely much, or no times fewer, was never reached and is no number."""
    ends = again.sort().values[[int(0.025 * len(again)), int(0.975 * len(again)) - 1]].tolist()
    mean, low, high = (end if 0 < end < math.inf else math.nan for end in (float(value), *ends))
    return {"mean": mean, "std": float(again.std()), "low": low, "high": high, "seeds": 1, "seconds_per_victim": 0.0}


def _utilities(evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    """The quality of each trained model over that without mitigation (deanonymization, section 7.2); users are drawn.

    Of an error, which is better when lower, the quotient is turned over.
    """
    scores = evaluation.scores
    if MITIGATION not in scores:
        return
    models = scores[(scores["attack"] == MODEL) & scores[MITIGATION].notna()]
    settings = setting_columns(scores)
    rest = [column for column in settings if column not in (MITIGATION, AMOUNT)]
    for _, cells in models.groupby(["metric", *rest], sort=False, dropna=False):
        plain = cells[cells[MITIGATION] == _NO_MITIGATION].drop_duplicates(["seed", "victim"], keep="last")
        for _, cell in cells.groupby([MITIGATION, AMOUNT], sort=False, dropna=False):
            paired = cell.merge(plain[["seed", "victim", "value"]], on=["seed", "victim"], suffixes=("", "_plain"))
            if len(paired):
                common = {column: cell[column].iloc[0] for column in settings}
                yield {**common, "attack": MODEL, "metric": "utility", **_utility(paired, str(cell["metric"].iloc[0]))}


def _utility(paired: pd.DataFrame, name: str) -> dict[str, Any]:
    now, then = (torch.tensor(paired[column].to_numpy(copy=True)) for column in ("value", "value_plain"))
    if metric(name).lower_is_better:
        now, then = then, now
    # The quotient of means is the mean of these, up to how users are drawn.
    found = bootstrap(now / then.mean(), generator=generator_for(0, "utility"))
    numbers = {"mean": found.mean, "std": found.std, "low": found.low, "high": found.high, "n": found.n}
    return {**numbers, "seeds": 1, "seconds_per_victim": 0.0}
