"""How much of what the raw data say about people's attributes is in their updates."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch

from evaluation.bootstrap import crossed_weights
from evaluation.runner import Evaluation
from evaluation.scores import SETTING, AttackInfo, setting_columns
from protocol.metric_table import Metric, add_metric
from protocol.seeding import generator_for

CEILING = "raw-data-classifier"
"""Label of the classifier on the raw data, which no server has."""
SHARE = "share-of-ceiling"
"""Metric; see `shares_of_ceiling`."""
ATTRIBUTE = SETTING + "attribute"
_RESAMPLES = 1000
_LEAST_GAIN = 0.02
"""Gain in AUC of the raw data below which nothing is divided by it."""

add_metric(
    Metric(
        SHARE,
        "Share of ceiling is the gain of the AUC over the best baseline, relative to that of the same classifier on the"
        " raw data.",
    )
)


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
            if roles[label] in ("ours", "published"):
                share = (weights @ values - low) / ceiling
                ends = share[1:].quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
                sizes = {"n": int(people.max()) + 1, "seeds": int(seeds.max()) + 1, "seconds_per_victim": 0.0}
                found = {"mean": float(share[0]), "std": float(share[1:].std()), "low": ends[0], "high": ends[1]}
                yield {**common, "attack": label, "metric": SHARE, **found, **sizes}
