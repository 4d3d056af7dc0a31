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
from fedleak.evaluation.judging import is_judged
from fedleak.evaluation.mean_interval import UNBOUNDED, MeanOverClients, Values
from fedleak.evaluation.posterior.posterior import combined_label
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import AttackInfo, from_records, setting_columns

RESULT: tuple[str, ...] = ("attack", "metric", "mean", "std", "low", "high", "n", "seeds", "seconds_per_victim")
"""Columns of a table of results, besides its settings and the fields of `fedleak.evaluation.scores.AttackInfo`."""

RATIO = ("ratio", "ratio_low", "ratio_high")
DIFFERENCE: tuple[str, ...] = ("attack", "against", "metric", "mean", "low", "high", "n", "seeds", *RATIO)
"""Columns of a table of paired differences, in addition to its settings."""


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
    fields = [dataclasses.asdict(lines.get(label, AttackInfo())) for label in results["attack"]]
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


def paired(one: pd.DataFrame, two: pd.DataFrame) -> tuple[MeanOverClients, pd.DataFrame, bool]:
    """Paired difference of the scores of two lines for one setting and metric, the first minus the second.

    Returns:
        The mean, of which intervals are asked; differences of clients ``(P, S)`` by seed, without those that have
        none; and whether clients affect each other's values.
    """
    gaps = _gap(crossed(one), crossed(two))
    influences = _gap(crossed(one, "influence"), crossed(two, "influence"))
    least, most = metric_of(str(one["metric"].iloc[0])).span or UNBOUNDED
    mean = _mean_over_clients(gaps, influences, clusters(one), (least - most, most - least))
    return mean, gaps, not influences.empty


def mean_over_clients(rows: pd.DataFrame) -> MeanOverClients:
    """Mean of the scores of one line, setting and metric, of which intervals are asked."""
    span = metric_of(str(rows["metric"].iloc[0])).span or UNBOUNDED
    return _mean_over_clients(crossed(rows), crossed(rows, "influence"), clusters(rows), span)


def crossed(rows: pd.DataFrame, column: str = "value") -> pd.DataFrame:
    """Table of clients by seeds: mean over rounds, NaN where a client has no value under a seed.

    Args:
        rows: scores of one line, setting and metric.
        column: ``value`` or ``influence``; the table is empty if an influence is missing.
    """
    if column == "influence" and bool(rows["influence"].isna().any()):
        return pd.DataFrame()
    (person, people), (seed, seeds) = pd.factorize(rows["person"]), pd.factorize(rows["seed"])
    sums, counts = np.zeros((len(people), len(seeds))), np.zeros((len(people), len(seeds)))
    known = rows[column].notna().to_numpy()  # a client may have no value in some of its rounds
    np.add.at(sums, (person[known], seed[known]), rows[column].to_numpy()[known])
    np.add.at(counts, (person[known], seed[known]), 1)
    with np.errstate(invalid="ignore"):
        return pd.DataFrame(sums / counts, index=people, columns=seeds)


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


def clusters(rows: pd.DataFrame) -> "pd.Series[int] | None":
    """Round of each client if every client took part in one and the same of several under every seed, else None."""
    by_person = rows.groupby("person", sort=False)["round"]
    rounds = by_person.first()
    return rounds if bool((by_person.nunique() == 1).all()) and 1 < rounds.nunique() < len(rounds) else None


def _mean_over_clients(
    values: pd.DataFrame, influences: pd.DataFrame, groups: "pd.Series[int] | None", span: tuple[float, float]
) -> MeanOverClients:
    """Mean over clients ``(P, S)`` and trainings, with what its intervals are made of.

    Args:
        values: values by client and training, NaN where there is none.
        influences: influences by client and training; empty where clients do not affect each other's values.
        groups: group of each client, None where every client is a unit.
        span: least and largest possible value.
    """
    if values.empty or not bool(values.notna().any(axis=None)):
        nothing = np.empty(0)
        return MeanOverClients(np.nan, nothing, nothing, span, nothing, nothing)
    unit_values, sizes = _of_units(values, groups)
    unit_influences = np.empty(0) if influences.empty else _of_units(influences, groups)[0]
    known = values.notna()
    # Where every client has a training of its own, the spread over clients already has that over trainings.
    own_training = bool((known.sum(axis=0) == 1).all() and (known.sum(axis=1) == 1).all())
    by_training = values.mean(axis=0).dropna().to_numpy()
    trainings = np.empty(0) if own_training or len(by_training) < 2 else by_training
    mean = float(np.nanmean(values.to_numpy()))
    return MeanOverClients(mean, unit_values, sizes, span, trainings, unit_influences)


def _of_units(values: pd.DataFrame, groups: "pd.Series[int] | None") -> tuple[Values, Values]:
    """``(U,)`` means and numbers of clients of the units: of clients, or of groups of them."""
    of_clients = values.mean(axis=1).dropna()
    if groups is None:
        return of_clients.to_numpy(), np.ones(len(of_clients))
    by_group = of_clients.groupby(groups.reindex(of_clients.index))
    return by_group.mean().to_numpy(), by_group.size().to_numpy().astype(np.float64)


def _matrix(values: pd.DataFrame) -> Tensor:
    return torch.from_numpy(values.to_numpy(dtype=np.float64, copy=True))


def _gap(one: pd.DataFrame, two: pd.DataFrame) -> pd.DataFrame:
    """First line's values minus the second's, for clients and seeds with a finite difference."""
    if one.empty or two.empty:
        return pd.DataFrame()
    gap = one - two.reindex(index=one.index, columns=one.columns)
    finite = gap.where(np.isfinite(gap))
    return finite.loc[finite.notna().any(axis=1), finite.notna().any(axis=0)]


def _pairs(values: Mapping[str, pd.DataFrame], lines: Mapping[str, AttackInfo], name: str) -> Iterator[tuple[str, str]]:
    sign = -1 if metric_of(name).lower_is_better else 1
    finite = {label: one.to_numpy()[np.isfinite(one.to_numpy())] for label, one in values.items()}
    means = {label: sign * float(own.mean()) for label, own in finite.items() if len(own)}
    for attack in means:
        line = lines.get(attack, AttackInfo())
        if line.role not in ("ours", "published"):
            continue
        same = [label for label in means if lines.get(label, AttackInfo()).question == line.question]
        for role in ("baseline", "published") if line.role == "ours" else ("baseline",):
            others = [label for label in same if lines[label].role == role]
            if others:
                yield attack, max(others, key=lambda label: means[label])
        yield from ((attack, label) for label in same if combined_label(label) == attack)
