"""Summary of a table of scores: means with intervals per line, setting and metric, and paired differences."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedleak.core.metric_table import metric as metric_of
from fedleak.core.seeding import generator_for
from fedleak.evaluation.bootstrap import crossed_ratio
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.judging import is_judged
from fedleak.evaluation.labels import combined_label
from fedleak.evaluation.paired_means import crossed, mean_over_clients, paired
from fedleak.evaluation.result_names import ATTACKS
from fedleak.evaluation.result_names import DIFFERENCE as DIFFERENCE
from fedleak.evaluation.result_names import RATIO as RATIO
from fedleak.evaluation.result_names import RESULT as RESULT
from fedleak.evaluation.scores import AttackInfo, from_records, setting_columns


def summarise(evaluation: Evaluation) -> pd.DataFrame:
    """One row per line, setting and metric, with the mean over clients and seeds.

    The rounds of a client under one seed are averaged first. The interval is about clients like these, see
    `fedleak.evaluation.mean_interval.MeanOverClients`; its units are clients, or rounds if every client took part in
    one of
    several: clients of one round were sent the same items or model, so they are not independent.

    Returns:
        Columns `RESULT`, the settings, and the fields of `fedleak.evaluation.scores.AttackInfo`.
    """
    scores = evaluation.scores
    keys = ["attack", *setting_columns(scores), "metric"]
    cells = [part for _, part in scores.groupby(keys, sort=False, dropna=False)]
    rows = [{**{key: cell[key].iloc[0] for key in keys}, **_summary(cell)} for cell in cells]
    return described(from_records(rows, list(dict.fromkeys([*keys, *RESULT]))), evaluation.lines)


def described(results: pd.DataFrame, lines: Mapping[str, AttackInfo]) -> pd.DataFrame:
    """Results with the fields of each row's line as columns."""
    fields = [lines.get(label, AttackInfo()).columns() for label in results["attack"]]
    columns = [field.name for field in dataclasses.fields(AttackInfo)]
    return results.assign(**{name: [entry[name] for entry in fields] for name in columns})


def paired_differences(evaluation: Evaluation, *, seed: int = 0) -> pd.DataFrame:
    """Paired differences between each attack and its comparisons, over the same clients and seeds.

    Every attack is compared with the best baseline of its question and setting, an attack of this project with the best
    published attack too, and an attack with priors with the same one without. What makes a client easy for both attacks
    cancels, so the interval can show a difference between attacks whose own intervals overlap.

    Returns:
        Columns `DIFFERENCE` and the settings, for the metrics that judge attacks. ``ratio`` with its ends is the ratio
        of the two means, NaN where clients affect each other's values.
    """
    scores = evaluation.scores
    settings = setting_columns(scores)
    judged = scores[is_judged(scores, {label: line.question for label, line in evaluation.lines.items()})]
    differences = []
    for _, cell_scores in judged.groupby([*settings, "metric"], sort=False, dropna=False):
        name = str(cell_scores["metric"].iloc[0])
        by_attack = {str(label): rows for label, rows in cell_scores.groupby("attack", sort=False)}
        values = {label: crossed(rows) for label, rows in by_attack.items()}
        for attack, against in _pairs(values, evaluation.lines, name):
            mean, gaps, influenced = paired(by_attack[attack], by_attack[against])
            if gaps.empty:
                continue
            low, high = mean.ends()
            numbers = {"mean": mean.mean, "low": low, "high": high, "n": len(gaps), "seeds": gaps.shape[1]}
            difference = {"attack": attack, "against": against, "metric": name, **numbers}
            ratio = (np.nan,) * 3
            if not influenced:
                of_attack, of_other = values[attack], values[against]
                aligned = of_other.reindex(index=of_attack.index, columns=of_attack.columns)
                ratio = crossed_ratio(_matrix(of_attack), _matrix(aligned), generator=generator_for(seed, "ratios"))
            difference |= dict(zip(RATIO, ratio, strict=True))
            differences.append({**difference, **{key: cell_scores[key].iloc[0] for key in settings}})
    return from_records(differences, [*DIFFERENCE, *settings])


def _summary(rows: pd.DataFrame) -> dict[str, Any]:
    """Columns `RESULT` of one line, setting and metric."""
    values = crossed(rows)
    of_clients = values.mean(axis=1).dropna()
    mean = mean_over_clients(rows)
    low, high = mean.ends()
    return {
        "mean": mean.mean,
        "std": float(of_clients.std()) if len(of_clients) > 1 else 0.0,
        "low": low,
        "high": high,
        "n": len(of_clients),
        "seeds": int(values.notna().any(axis=0).sum()),
        "seconds_per_victim": float(rows["seconds"].mean()),
    }


def _matrix(values: pd.DataFrame) -> Tensor:
    return torch.from_numpy(values.to_numpy(dtype=np.float64, copy=True))


def _pairs(values: Mapping[str, pd.DataFrame], lines: Mapping[str, AttackInfo], name: str) -> Iterator[tuple[str, str]]:
    entry = metric_of(name)
    finite = {label: one.to_numpy()[np.isfinite(one.to_numpy())] for label, one in values.items()}
    means = {label: entry.leakage(float(own.mean())) for label, own in finite.items() if len(own)}
    for attack in means:
        line = lines.get(attack, AttackInfo())
        if line.role not in ATTACKS:
            continue
        same = [label for label in means if lines.get(label, AttackInfo()).question == line.question]
        for role in ("baseline", "published") if line.role == "ours" else ("baseline",):
            others = [label for label in same if lines[label].role == role]
            if others:
                yield attack, max(others, key=lambda label: means[label])
        yield from ((attack, label) for label in same if combined_label(label) == attack)
