"""From scores of people under several seeds to means with intervals, and to differences on the same people."""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from attacks.metrics import Summary, clopper_pearson, crossed_bootstrap
from datamodules.keys import generator_for
from reports.judging import GUESSES, JUDGED, METRICS, PUBLISHED, is_attack, lower_is_better
from reports.papers import paper_value
from reports.results import Difference, Result, VictimRow

Crossed = dict[tuple[int, int], float]
"""By person and seed, the mean over rounds."""
Cell = tuple[str, str]
"""A setting and a metric."""


def summarise(rows: Sequence[VictimRow], *, seed: int = 0) -> list[Result]:
    """One result per attack, setting and metric, over people and seeds.

    Rounds of a person under one seed are averaged. Then people and seeds are drawn, see
    `attacks.metrics.crossed_bootstrap`; of yes or no, where all people have the same answer, the interval is Clopper
    and Pearson's, because no resample would differ.

    Args:
        rows: the victims' scores.
        seed: seed of the bootstrap.
    """
    cells: dict[tuple[str, str, str], list[VictimRow]] = defaultdict(list)
    for row in rows:
        cells[row.attack, repr(sorted(row.setting.items())), row.metric].append(row)
    return [_result(cell, seed) for cell in cells.values()]


def _result(cell: Sequence[VictimRow], seed: int) -> Result:
    first = cell[0]
    summary, seeds = _summary(_crossed(cell), _crossed(cell, influence=True), first.metric, seed)
    return Result(
        attack=first.attack,
        setting=dict(first.setting),
        metric=first.metric,
        mean=summary.mean,
        std=summary.std,
        ci95=(summary.low, summary.high),
        n=summary.n,
        seconds_per_victim=sum(row.seconds for row in cell) / len(cell),
        paper=paper_value(first.attack, first.metric, first.setting),
        seeds=seeds,
    )


def _summary(crossed: Crossed, influences: Crossed, metric: str, seed: int) -> tuple[Summary, int]:
    """Over people, and the number of seeds."""
    values = _matrix(crossed)
    summary = _about_the_mean(values, influences, generator_for(seed, "bootstrap"))
    binary = metric in METRICS and METRICS[metric].binary
    if binary and summary.n and summary.low == summary.high and summary.mean in (0.0, 1.0):
        low, high = clopper_pearson(round(summary.mean * summary.n), summary.n)
        summary = dataclasses.replace(summary, low=low, high=high)
    return summary, int((~values.isnan()).any(0).sum())


def _about_the_mean(values: Tensor, influences: Crossed, generator: torch.Generator) -> Summary:
    """Over people and seeds; where people share in one another's values, with the interval of their influences."""
    if not influences:
        return crossed_bootstrap(values, generator=generator)
    spread = crossed_bootstrap(_matrix(influences), generator=generator)
    mean = float(values.nanmean())
    own = (~values.isnan()).any(1)
    std = float(values[own].nanmean(1).std()) if int(own.sum()) > 1 else 0.0
    return Summary(mean, std, mean + spread.low - spread.mean, mean + spread.high - spread.mean, int(own.sum()))


def _crossed(rows: Sequence[VictimRow], *, influence: bool = False) -> Crossed:
    """Of the values, or of the influences: nothing where a row has none."""
    values: dict[tuple[int, int], list[float]] = defaultdict(list)
    for row in rows:
        value = row.influence if influence else row.value
        if value is None:
            return {}
        values[row.victim if row.person is None else row.person, row.seed].append(value)
    return {key: sum(found) / len(found) for key, found in values.items()}


def _matrix(crossed: Crossed) -> Tensor:
    """``(P, S)``, NaN where a person has no value under a seed."""
    people = {person: i for i, person in enumerate(dict.fromkeys(person for person, _ in crossed))}
    seeds = {seed: i for i, seed in enumerate(dict.fromkeys(seed for _, seed in crossed))}
    values = torch.full((len(people), len(seeds)), torch.nan, dtype=torch.float64)
    for (person, seed), value in crossed.items():
        values[people[person], seeds[seed]] = value
    return values


def paired_differences(rows: Sequence[VictimRow], *, seed: int = 0) -> list[Difference]:
    """By how much each attack is above what stands next to it, on the same people under the same seeds.

    Every attack is set against the best guess of its setting, and ours against the best published attack too. The
    interval is over people and seeds; of two attacks whose intervals overlap it says whether one is better, because
    what makes a person easy for both cancels.

    Args:
        rows: the victims' scores.
        seed: seed of the bootstrap.

    Returns:
        Of the metrics by which attacks are judged.
    """
    cells: dict[Cell, dict[str, list[VictimRow]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.metric in JUDGED:
            cells[repr(sorted(row.setting.items())), row.metric][row.attack].append(row)
    found = []
    for (_, metric), by_attack in cells.items():
        crossed = {attack: _crossed(some) for attack, some in by_attack.items()}
        influences = {attack: _crossed(some, influence=True) for attack, some in by_attack.items()}
        setting = next(iter(by_attack.values()))[0].setting
        for pair in _pairs(crossed, metric):
            gaps, shared = _gaps(pair, crossed), _gaps(pair, influences)
            if gaps:
                found.append(_difference(pair, gaps, shared, setting, metric, seed))
    return found


def _pairs(crossed: Mapping[str, Crossed], metric: str) -> Iterator[tuple[str, str]]:
    sign = -1 if lower_is_better(metric) else 1
    means = {name: sign * value for name, cell in crossed.items() if (value := _mean(cell.values())) == value}
    for attack in (name for name in means if is_attack(name)):
        matching = attack.startswith("matching")
        guesses = [n for n in means if n in GUESSES and n.startswith("matching") == matching]
        published = [n for n in means if n in PUBLISHED and n.startswith("matching") == matching]
        for others in (guesses, published if attack not in PUBLISHED else []):
            if others:
                yield attack, max(others, key=lambda name: means[name])


def _gaps(pair: tuple[str, str], crossed: Mapping[str, Crossed]) -> Crossed:
    """The first attack's values less the second's, where both have one."""
    one, two = (crossed[name] for name in pair)
    return {key: value - two[key] for key, value in one.items() if key in two and math.isfinite(value - two[key])}


def _difference(
    pair: tuple[str, str], gaps: Crossed, shared: Crossed, setting: Mapping[str, Any], metric: str, seed: int
) -> Difference:
    values = _matrix(gaps)
    summary = _about_the_mean(values, shared, generator_for(seed, "differences"))
    return Difference(
        attack=pair[0],
        against=pair[1],
        setting=dict(setting),
        metric=metric,
        mean=summary.mean,
        ci95=(summary.low, summary.high),
        n=summary.n,
        seeds=values.shape[1],
    )


def _mean(values: Iterable[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan
