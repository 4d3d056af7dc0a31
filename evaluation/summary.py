"""Summary of a table of scores: means with intervals per line, setting and metric, and paired differences."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attacks.scoring import clopper_pearson
from evaluation.bootstrap import Summary, crossed_bootstrap, crossed_ratio
from evaluation.posterior.posterior import combined_label
from evaluation.runner import Evaluation
from evaluation.scores import AttackInfo, from_records, setting_columns
from protocol.metric_table import METRICS
from protocol.metric_table import metric as metric_of
from protocol.seeding import generator_for

RESULT: tuple[str, ...] = ("attack", "metric", "mean", "std", "low", "high", "n", "seeds", "seconds_per_victim")
"""Columns of a table of results, in addition to its settings and the fields of `evaluation.scores.AttackInfo`."""

RATIO = ("ratio", "ratio_low", "ratio_high")
DIFFERENCE: tuple[str, ...] = ("attack", "against", "metric", "mean", "low", "high", "n", "seeds", *RATIO)
"""Columns of a table of paired differences, in addition to its settings."""


def summarise(evaluation: Evaluation, *, seed: int = 0) -> pd.DataFrame:
    """One row per line, setting and metric, with the mean over clients and seeds.

    The rounds of a client under one seed are averaged first. The interval is `evaluation.bootstrap.crossed_bootstrap`
    over clients, or over rounds if every client took part in one of several: clients of one round were sent the same
    items or model, so they are not independent. For a binary metric with the same value for all clients, where no
    resample differs, it is Clopper-Pearson.

    Returns:
        Columns `RESULT`, the settings, and the fields of `evaluation.scores.AttackInfo`.
    """
    scores = evaluation.scores
    keys = ["attack", *setting_columns(scores), "metric"]
    cells = [part for _, part in scores.groupby(keys, sort=False, dropna=False)]
    rows = [{**{key: cell[key].iloc[0] for key in keys}, **_summary(cell, seed)} for cell in cells]
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
    judged = scores[scores["metric"].isin([name for name, entry in METRICS.items() if entry.judged])]
    found = []
    for _, part in judged.groupby([*settings, "metric"], sort=False, dropna=False):
        name = str(part["metric"].iloc[0])
        own = {str(label): rows for label, rows in part.groupby("attack", sort=False)}
        for attack, against in _pairs({k: crossed(v) for k, v in own.items()}, evaluation.lines, name):
            pair = own[attack], own[against]
            summary, gaps, influenced = paired(*pair, seed=seed)
            if gaps.empty:
                continue
            ends = {"mean": summary.mean, "low": summary.low, "high": summary.high, "n": summary.n}
            cell = {"attack": attack, "against": against, "metric": name, **ends, "seeds": gaps.shape[1]}
            ratio = (np.nan,) * 3
            if not influenced:
                one, two = (crossed(rows) for rows in pair)
                aligned = _matrix(two.reindex(index=one.index, columns=one.columns))
                ratio = crossed_ratio(_matrix(one), aligned, generator=generator_for(seed, "ratios"))
            cell |= dict(zip(RATIO, ratio, strict=True))
            found.append({**cell, **{key: part[key].iloc[0] for key in settings}})
    return from_records(found, [*DIFFERENCE, *settings])


def paired(one: pd.DataFrame, two: pd.DataFrame, *, seed: int = 0) -> tuple[Summary, pd.DataFrame, bool]:
    """Paired difference of the scores of two lines for one setting and metric, the first minus the second.

    Returns:
        Mean with its interval, see `summarise`; differences of clients ``(P, S)`` by seed, without those that have
        none; and whether clients affect each other's values, so that the interval is of the influences.
    """
    gaps, shared = _gap(crossed(one), crossed(two)), _gap(crossed(one, "influence"), crossed(two, "influence"))
    groups, generator = clusters(one), generator_for(seed, "differences")
    return _about_the_mean(gaps, shared, groups, generator), gaps, not shared.empty


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


def _summary(rows: pd.DataFrame, seed: int) -> dict[str, Any]:
    values, name = crossed(rows), str(rows["metric"].iloc[0])
    influences, generator = crossed(rows, "influence"), generator_for(seed, "bootstrap")
    summary = _about_the_mean(values, influences, clusters(rows), generator)
    if not influences.empty and (span := metric_of(name).span) is not None:  # pseudo-values may lie beyond it
        low, high = np.clip([summary.low, summary.high], *span)
        summary = dataclasses.replace(summary, low=float(low), high=float(high))
    alike = summary.n > 0 and summary.low == summary.high and summary.mean in (0.0, 1.0)
    if metric_of(name).binary and alike:
        low, high = clopper_pearson(round(summary.mean * summary.n), summary.n)
        summary = dataclasses.replace(summary, low=low, high=high)
    return {
        **dataclasses.asdict(summary),
        "seeds": int(values.notna().any(axis=0).sum()),
        "seconds_per_victim": float(rows["seconds"].mean()),
    }


def clusters(rows: pd.DataFrame) -> "pd.Series[int] | None":
    """Round of each client if every client took part in one and the same of several under every seed, else None."""
    by_person = rows.groupby("person", sort=False)["round"]
    rounds = by_person.first()
    return rounds if bool((by_person.nunique() == 1).all()) and 1 < rounds.nunique() < len(rounds) else None


def _about_the_mean(
    values: pd.DataFrame, influences: pd.DataFrame, groups: "pd.Series[int] | None", generator: torch.Generator
) -> Summary:
    """Summary over clients and seeds; where clients affect each other's values, the interval is of the influences."""
    matrix = _matrix(values)
    own_groups = None if groups is None else torch.tensor(groups.reindex(values.index).to_numpy())
    if influences.empty:
        return crossed_bootstrap(matrix, generator=generator, clusters=own_groups)
    own_groups = None if groups is None else torch.tensor(groups.reindex(influences.index).to_numpy())
    spread = crossed_bootstrap(_matrix(influences), generator=generator, clusters=own_groups)
    mean = float(matrix.nanmean())
    own = (~matrix.isnan()).any(1)
    std = float(matrix[own].nanmean(1).std()) if int(own.sum()) > 1 else 0.0
    return Summary(mean, std, mean + spread.low - spread.mean, mean + spread.high - spread.mean, int(own.sum()))


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
