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
MITIGATION = SETTING + "mitigation"
"""Setting of a training with a mitigation: its name."""
AMOUNT = SETTING + "amount"
"""Setting of its strength."""
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
"""Resamples of a bootstrap."""
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
    if rows:
        return described(from_records(rows), evaluation.lines)
    return pd.DataFrame()


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
    infos = evaluation.lines
    roles = scores["attack"].map(lambda label: infos.get(label, AttackInfo()).role)
    of_attacks = roles.isin(list(ATTACKS))
    curves = scores[(scores["metric"] == name) & scores[AXIS].notna() & of_attacks]
    other_settings = [column for column in setting_columns(scores) if column != AXIS]
    for _, group in curves.groupby(other_settings, sort=False, dropna=False):
        # The goal is the error of the first published attack.
        is_published = roles[group.index] == "published"
        published = group["attack"][is_published]
        if len(published):
            setting = {column: group[column].iloc[0] for column in other_settings}
            yield from _crossings(group, str(published.iloc[0]), setting)


def _crossings(rows: pd.DataFrame, published: str, setting: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of one setting: T needed and the factor, for each reference at which the published attack was measured."""
    curves, points, (seeds, people) = _victim_curves(rows)
    goals = curves.pop(published)
    if not len(goals):
        return
    generator = generator_for(0, "interactions-needed")
    weights = crossed_weights(people, seeds, resamples=_RESAMPLES, generator=generator)
    weights = weights / weights.sum(1, keepdim=True)
    for reference in REFERENCES:
        if reference not in points.tolist():
            continue
        column = points.tolist().index(reference)
        for attack, values in curves.items():
            # On all clients, and on each resample of clients and seeds.
            needed = _needed(values.mean(0)[None], goals.mean(0)[None, column], points)
            resampled = _needed(weights @ values, weights @ goals[:, column], points)
            common = {
                **setting,
                "attack": attack,
                SETTING + "as_pac_after": reference,
                "n": int(people.max()) + 1,
                "seeds": int(seeds.max()) + 1,
            }
            yield {**common, "metric": "interactions", **_interval(needed[0], resampled)}
            yield {**common, "metric": "times-fewer", **_interval(reference / needed[0], reference / resampled)}


def _victim_curves(rows: pd.DataFrame) -> tuple[dict[str, Tensor], Tensor, tuple[Tensor, Tensor]]:
    """Curves ``(V, T)`` by attack of the victims with a value at every point, points ``(T,)``, and seeds, clients."""
    points = rows[AXIS].astype(float)
    means = rows.groupby(["attack", "seed", "victim", points])["value"].mean().unstack()
    by_attack = {attack: means.loc[attack] for attack in dict.fromkeys(rows["attack"])}
    # Victims with a value at every point, by every attack.
    complete = [table.dropna().index for table in by_attack.values()]
    shared = functools.reduce(lambda first, second: first.intersection(second), complete)
    shared = shared.sort_values()
    curves = {}
    for attack, table in by_attack.items():
        of_shared = table.loc[shared].to_numpy(copy=True)
        curves[attack] = torch.from_numpy(of_shared)
    seeds, _ = pd.factorize(shared.get_level_values("seed"))
    people, _ = pd.factorize(shared.get_level_values("victim"))
    ascending = means.columns.to_numpy(dtype=np.float64, copy=True)
    return curves, torch.from_numpy(ascending), (torch.from_numpy(seeds), torch.from_numpy(people))


def _needed(curves: Tensor, goals: Tensor, points: Tensor) -> Tensor:
    """``(K,)`` first point at which curves ``(K, T)`` reach goals ``(K,)``, infinity where they never do."""
    reached = curves <= goals[:, None]
    first = reached.int().argmax(1)
    before = (first - 1).clamp(min=0)
    error_before = curves.gather(1, before[:, None])[:, 0]
    error_first = curves.gather(1, first[:, None])[:, 0]
    # Linear in log T between the last point above the goal and the first one below it.
    step = (error_before - error_first).clamp(min=1e-300)
    share = ((error_before - goals) / step).clamp(0, 1)
    logs = points.log()
    needed = torch.exp(logs[before] + share * (logs[first] - logs[before]))
    needed = torch.where(first == 0, points[0], needed)
    return torch.where(reached.any(1), needed, torch.inf)


def _interval(value: Tensor, resampled: Tensor) -> dict[str, Any]:
    """Mean and interval of a cell; infinity and zero, for a goal that was never reached, become NaN."""
    # Percentiles of the bootstrap.
    ascending = resampled.sort().values
    low = float(ascending[int(0.025 * len(resampled))])
    high = float(ascending[int(0.975 * len(resampled)) - 1])
    return {
        "mean": _if_reached(float(value)),
        "std": float(resampled.std()),
        "low": _if_reached(low),
        "high": _if_reached(high),
        "seconds_per_victim": 0.0,
    }


def _if_reached(interactions: float) -> float:
    if 0 < interactions < math.inf:
        return interactions
    return math.nan


def _utilities(evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    """Quality of each trained model relative to the model without mitigation, with an interval over users.

    For metrics that are better when lower, the ratio is inverted.

    References:
        [Orekondy18], section 7.2.
    """
    scores = evaluation.scores
    if MITIGATION not in scores:
        return
    models = scores[(scores["attack"] == MODEL) & scores[MITIGATION].notna()]
    settings = setting_columns(scores)
    rest = [column for column in settings if column not in (MITIGATION, AMOUNT)]
    clients = ["seed", "victim"]
    for _, cells in models.groupby(["metric", *rest], sort=False, dropna=False):
        plain = cells[cells[MITIGATION] == _NO_MITIGATION].drop_duplicates(clients, keep="last")
        plain_values = plain[[*clients, "value"]]
        for _, cell in cells.groupby([MITIGATION, AMOUNT], sort=False, dropna=False):
            # Each client of a training with its value in the training of the same seed without mitigation.
            paired = cell.merge(plain_values, on=clients, suffixes=("", "_plain"))
            if len(paired):
                common = {column: cell[column].iloc[0] for column in settings}
                utility = _utility(paired, str(cell["metric"].iloc[0]))
                yield {**common, "attack": MODEL, "metric": "utility", **utility}


def _utility(paired: pd.DataFrame, name: str) -> dict[str, Any]:
    """Ratio of the means with and without a mitigation, with its interval; inverted where lower is better."""
    mitigated = _values_by_client(paired, "value")
    plain = _values_by_client(paired, "value_plain")
    if metric(name).lower_is_better:
        numerator, denominator = plain, mitigated
    else:
        numerator, denominator = mitigated, plain
    ratio, low, high = crossed_ratio(numerator, denominator, generator=generator_for(0, "utility"))
    std = float((numerator / denominator.nanmean()).nanmean(1).std(correction=0))
    return {
        "mean": ratio,
        "std": std,
        "low": low,
        "high": high,
        "n": len(numerator),
        "seeds": numerator.shape[1],
        "seconds_per_victim": 0.0,
    }


def _values_by_client(paired: pd.DataFrame, column: str) -> Tensor:
    """``(V, S)`` values of clients by seed."""
    table = paired.pivot(index="victim", columns="seed", values=column)
    return torch.from_numpy(table.to_numpy(dtype=np.float64, copy=True))


def shares_of_ceiling(evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    """Gain in AUC of each attack over the best baseline or 0.5, divided by that of the classifier on the raw data.

    The interval is a bootstrap over people and seeds that recomputes both gains, on the influences of all three, so an
    AUC depends on the people of every value. Where the raw data say nothing (a gain below 0.02, or an interval of it
    that holds 0), there is no share.
    """
    scores = evaluation.scores
    if ATTRIBUTE not in scores:
        return
    on_attributes = scores[(scores["metric"] == "auc") & scores[ATTRIBUTE].notna() & scores["influence"].notna()]
    columns = setting_columns(scores)
    for _, cell in on_attributes.groupby(columns, sort=False, dropna=False):
        # Influences of the people on the AUC of every attack; an AUC is their mean.
        influences = cell.pivot_table(index=["seed", "person"], columns="attack", values="influence").dropna()
        if CEILING not in influences or influences.empty:
            continue
        by_attack = {}
        for label in influences:
            by_attack[str(label)] = torch.from_numpy(influences[label].to_numpy(dtype="float64", copy=True))
        roles = {label: evaluation.lines.get(label, AttackInfo()).role for label in by_attack}
        baselines = [values for label, values in by_attack.items() if roles[label] == "baseline"]
        people = torch.from_numpy(pd.factorize(influences.index.get_level_values("person"))[0])
        seeds = torch.from_numpy(pd.factorize(influences.index.get_level_values("seed"))[0])
        # The first row of weights is all people once, for the value itself; the rest are the resamples.
        generator = generator_for(0, "attribute gain")
        resamples = crossed_weights(people, seeds, resamples=_RESAMPLES, generator=generator)
        weights = torch.cat([torch.ones(1, len(influences)), resamples])
        weights = (weights / weights.sum(1, keepdim=True)).double()
        # Share: (AUC - base) / (AUC of the raw data - base), where base is 0.5 or the best baseline.
        base = torch.full((len(weights),), 0.5, dtype=torch.float64)
        if baselines:
            base = base.maximum(weights @ max(baselines, key=lambda values: float(values.mean())))
        ceiling = weights @ by_attack[CEILING] - base
        if float(ceiling[0]) < _LEAST_GAIN or float(ceiling[1:].quantile(0.025)) <= 0:
            continue
        common = {column: cell[column].iloc[0] for column in columns}
        for label, values in by_attack.items():
            if roles[label] not in ATTACKS:
                continue
            share = (weights @ values - base) / ceiling
            low, high = share[1:].quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
            yield {
                **common,
                "attack": label,
                "metric": SHARE,
                "mean": float(share[0]),
                "std": float(share[1:].std()),
                "low": low,
                "high": high,
                "n": int(people.max()) + 1,
                "seeds": int(seeds.max()) + 1,
                "seconds_per_victim": 0.0,
            }
