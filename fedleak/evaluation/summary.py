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
    one of several: clients of one round were sent the same items or model, so they are not independent.

    Returns:
        Columns `RESULT`, the settings, and the fields of `fedleak.evaluation.scores.AttackInfo`.
    """
    scores = evaluation.scores
    keys = ["attack", *setting_columns(scores), "metric"]
    rows = []
    for _, cell in scores.groupby(keys, sort=False, dropna=False):
        cell_keys = {key: cell[key].iloc[0] for key in keys}
        rows.append({**cell_keys, **_summary(cell)})
    columns = list(dict.fromkeys([*keys, *RESULT]))
    return described(from_records(rows, columns), evaluation.lines)


def described(results: pd.DataFrame, infos: Mapping[str, AttackInfo]) -> pd.DataFrame:
    """Results with the fields of each row's line as columns."""
    fields = [infos.get(label, AttackInfo()).columns() for label in results["attack"]]
    columns = {}
    for field in dataclasses.fields(AttackInfo):
        columns[field.name] = [of_row[field.name] for of_row in fields]
    return results.assign(**columns)


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
    questions = {label: info.question for label, info in evaluation.lines.items()}
    judged = scores[is_judged(scores, questions)]
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
            # A ratio of means over clients makes no sense where one client's value depends on the others.
            ratio = (np.nan,) * 3
            if not influenced:
                of_attack = values[attack]
                aligned = values[against].reindex(index=of_attack.index, columns=of_attack.columns)
                ratio = crossed_ratio(_matrix(of_attack), _matrix(aligned), generator=generator_for(seed, "ratios"))
            differences.append(
                {
                    "attack": attack,
                    "against": against,
                    "metric": name,
                    "mean": mean.mean,
                    "low": low,
                    "high": high,
                    "n": len(gaps),
                    "seeds": gaps.shape[1],
                    **dict(zip(RATIO, ratio, strict=True)),
                    **{key: cell_scores[key].iloc[0] for key in settings},
                }
            )
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


def _pairs(values: Mapping[str, pd.DataFrame], infos: Mapping[str, AttackInfo], name: str) -> Iterator[tuple[str, str]]:
    """Labels of each attack and of what it is compared with, the best of its role by the mean of finite values."""
    entry = metric_of(name)
    leakage = {}
    for label, table in values.items():
        numbers = table.to_numpy()
        finite = numbers[np.isfinite(numbers)]
        if len(finite):
            leakage[label] = entry.leakage(float(finite.mean()))
    for attack in leakage:
        info = infos.get(attack, AttackInfo())
        if info.role not in ATTACKS:
            continue
        same_question = [label for label in leakage if infos.get(label, AttackInfo()).question == info.question]
        roles = ("baseline", "published") if info.role == "ours" else ("baseline",)
        for role in roles:
            candidates = [label for label in same_question if infos[label].role == role]
            if candidates:
                yield attack, max(candidates, key=lambda label: leakage[label])
        # The same attack without the priors.
        for label in same_question:
            if combined_label(label) == attack:
                yield attack, label
