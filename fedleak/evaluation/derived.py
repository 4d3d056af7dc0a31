"""Results derived from several cells: interactions needed, utility under a mitigation, gains on attributes."""

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedleak.core.metric import ANY, Metric
from fedleak.core.metric_table import add_metric, metric
from fedleak.core.seeding import generator_for
from fedleak.evaluation.bootstrap import crossed_ratio, crossed_weights
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.result_names import ATTACKS
from fedleak.evaluation.scores import SETTING, AttackInfo, from_records, setting_columns
from fedleak.evaluation.summary import described

AXIS = SETTING + "interactions"
MITIGATION, AMOUNT = SETTING + "mitigation", SETTING + "amount"
REFERENCES = (100, 1000, 10000)
"""Numbers of interactions after which the error of the published attack is the goal of the others."""
MODEL = "global-model"
"""Label of the trained model's own quality."""
CEILING = "raw-data-classifier"
"""Label of the classifier of people's attributes on the raw data, which no server has."""
SHARE = "share-of-ceiling"
"""Metric; see `shares_of_ceiling`."""
ATTRIBUTE = SETTING + "attribute"
_LEAST_GAIN = 0.02
"""Gain in AUC of the raw data below which nothing is divided by it."""
DERIVED = ("interactions", "times-fewer", "utility", SHARE)
"""Derived metrics."""
_RESAMPLES = 1000
_NO_MITIGATION = "none"

add_metric(
    Metric(
        SHARE,
        "Share of ceiling is the gain of the AUC over the best baseline, relative to that of the same classifier on the"
        " raw data.",
        span=ANY,
    )
)


def derived(evaluation: Evaluation) -> pd.DataFrame:
    """Derived results of all scores, with the columns of `fedleak.evaluation.summarise`; empty if there are none."""
    rows = [*_interactions_needed(evaluation), *_utilities(evaluation), *shares_of_ceiling(evaluation)]
    return described(from_records(rows), evaluation.lines) if rows else pd.DataFrame()


def _interactions_needed(evaluation: Evaluation, name: str = "error") -> Iterator[dict[str, Any]]:
    """Interactions after which each attack reaches the error of the published one after 100, 1,000 or 10,000.

    The mean curve is interpolated linearly in log T. The interval is a bootstrap over clients and seeds that recomputes
    both the goal and the curve. An attack that reaches the goal at the first point has that T; one that never does has
    NaN.
    Metrics: ``interactions`` (T needed) and ``times-fewer`` (factor by which T is smaller).
    """
    scores = evaluation.scores
    if AXIS not in scores:
        return
    roles = scores["attack"].map(lambda label: evaluation.lines.get(label, AttackInfo()).role)
    curves = scores[(scores["metric"] == name) & scores[AXIS].notna() & roles.isin(list(ATTACKS))]
    others = [column for column in setting_columns(scores) if column != AXIS]
    for _, group in curves.groupby(others, sort=False, dropna=False):
        published = group["attack"][roles[group.index] == "published"]
        if len(published):
            setting = {column: group[column].iloc[0] for column in others}
            yield from _crossings(group, str(published.iloc[0]), setting)


def _crossings(rows: pd.DataFrame, published: str, setting: dict[str, Any]) -> Iterator[dict[str, Any]]:
    curves, points, (seeds, people) = _victim_curves(rows)
    goals = curves.pop(published)
    if not len(goals):
        return
    generator = generator_for(0, "interactions-needed")
    weights = crossed_weights(people, seeds, resamples=_RESAMPLES, generator=generator)
    weights = weights / weights.sum(1, keepdim=True)
    for reference in (r for r in REFERENCES if r in points.tolist()):
        at = points.tolist().index(reference)
        for attack, values in curves.items():
            needed = _needed(values.mean(0)[None], goals.mean(0)[None, at], points)
            again = _needed(weights @ values, weights @ goals[:, at], points)
            common = {**setting, "attack": attack, SETTING + "as_pac_after": reference}
            common |= {"n": int(people.max()) + 1, "seeds": int(seeds.max()) + 1}
            yield {**common, "metric": "interactions", **_interval(needed[0], again)}
            yield {**common, "metric": "times-fewer", **_interval(reference / needed[0], reference / again)}


def _victim_curves(rows: pd.DataFrame) -> tuple[dict[str, Tensor], Tensor, tuple[Tensor, Tensor]]:
    """Curves ``(V, T)`` by attack of the victims with a value at every point, points ``(T,)``, and seeds, clients."""
    means = rows.groupby(["attack", "seed", "victim", rows[AXIS].astype(float)])["value"].mean().unstack()
    by_attack = {attack: means.loc[attack] for attack in dict.fromkeys(rows["attack"])}
    whole = [own.dropna().index for own in by_attack.values()]
    shared = functools.reduce(lambda kept, index: kept.intersection(index), whole).sort_values()
    curves = {attack: torch.from_numpy(own.loc[shared].to_numpy(copy=True)) for attack, own in by_attack.items()}
    seeds, people = (torch.from_numpy(pd.factorize(shared.get_level_values(level))[0]) for level in ("seed", "victim"))
    return curves, torch.from_numpy(means.columns.to_numpy(dtype=np.float64, copy=True)), (seeds, people)


def _needed(curves: Tensor, goals: Tensor, points: Tensor) -> Tensor:
    """``(K,)`` first point at which curves ``(K, T)`` reach goals ``(K,)``, infinity where they never do."""
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
    """Mean and interval of a cell; infinity and zero, for a goal that was never reached, become NaN."""
    ends = again.sort().values[[int(0.025 * len(again)), int(0.975 * len(again)) - 1]].tolist()
    mean, low, high = (end if 0 < end < math.inf else math.nan for end in (float(value), *ends))
    return {"mean": mean, "std": float(again.std()), "low": low, "high": high, "seconds_per_victim": 0.0}


def _utilities(evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    """Quality of each trained model relative to the model without mitigation, with an interval over users.

    For metrics that are better when lower, the ratio is inverted.

    References:
        Orekondy, Oh, Zhang, Schiele and Fritz, "Gradient-Leaks: Understanding and Controlling Deanonymization in
        Federated Learning", 2018, arXiv:1805.05838, section 7.2.
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
    pairs = [paired.pivot(index="victim", columns="seed", values=column) for column in ("value", "value_plain")]
    now, then = (torch.from_numpy(table.to_numpy(dtype=np.float64, copy=True)) for table in pairs)
    if metric(name).lower_is_better:
        now, then = then, now
    ratio, low, high = crossed_ratio(now, then, generator=generator_for(0, "utility"))
    std = float((now / then.nanmean()).nanmean(1).std(correction=0))
    sizes = {"n": len(now), "seeds": now.shape[1], "seconds_per_victim": 0.0}
    return {"mean": ratio, "std": std, "low": low, "high": high, **sizes}


def shares_of_ceiling(evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    """Gain in AUC of each attack over the best baseline or 0.5, divided by that of the classifier on the raw data.

    The interval is a bootstrap over people and seeds that recomputes both gains, on the influences of all three, so an
    AUC depends on the people of every value. Where the raw data say nothing (a gain below 0.02, or an interval of it
    that holds 0), there is no share.
    """
    scores = evaluation.scores
    if ATTRIBUTE not in scores:
        return
    asked = scores[(scores["metric"] == "auc") & scores[ATTRIBUTE].notna() & scores["influence"].notna()]
    columns = setting_columns(scores)
    for _, cell in asked.groupby(columns, sort=False, dropna=False):
        whole = cell.pivot_table(index=["seed", "person"], columns="attack", values="influence").dropna()
        if CEILING not in whole or whole.empty:
            continue
        own = {str(label): torch.from_numpy(whole[label].to_numpy(dtype="float64", copy=True)) for label in whole}
        roles = {label: evaluation.lines.get(label, AttackInfo()).role for label in own}
        baselines = [values for label, values in own.items() if roles[label] == "baseline"]
        people, seeds = (torch.from_numpy(pd.factorize(whole.index.get_level_values(n))[0]) for n in ("person", "seed"))
        weights = crossed_weights(people, seeds, resamples=_RESAMPLES, generator=generator_for(0, "attribute gain"))
        weights = torch.cat([torch.ones(1, len(whole)), weights])
        weights = (weights / weights.sum(1, keepdim=True)).double()
        low = torch.full((len(weights),), 0.5, dtype=torch.float64)
        if baselines:
            low = low.maximum(weights @ max(baselines, key=lambda values: float(values.mean())))
        ceiling = weights @ own[CEILING] - low
        if float(ceiling[0]) < _LEAST_GAIN or float(ceiling[1:].quantile(0.025)) <= 0:
            continue
        common = {column: cell[column].iloc[0] for column in columns}
        for label, values in own.items():
            if roles[label] in ATTACKS:
                share = (weights @ values - low) / ceiling
                ends = share[1:].quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
                sizes = {"n": int(people.max()) + 1, "seeds": int(seeds.max()) + 1, "seconds_per_victim": 0.0}
                found = {"mean": float(share[0]), "std": float(share[1:].std()), "low": ends[0], "high": ends[1]}
                yield {**common, "attack": label, "metric": SHARE, **found, **sizes}
