"""Diagnosis of attacks that hardly exceed the baselines: likely causes, from measured quantities."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from evaluation.no_reconstruction import no_reconstructions
from evaluation.scores import records, setting_columns, setting_of
from evaluation.symptoms import POSSIBLE, Symptom, symptoms
from protocol.metric_table import METRICS, metric
from recordings.recorded_learner import recorded_learner
from recordings.recording import Recording

_NEAR = 0.2
"""Share of the range from guessing to certainty below which an attack counts as failed; an AUC of 0.6."""
_WIDE = 0.2
"""Width of an interval, as a share of the same range, above which more victims are needed."""
_VIEWS, _VICTIMS = 4, 16
_ATTACKS = ("ours", "published")


@dataclass(frozen=True)
class Cause:
    """Likely cause of an attack's failure.

    Attributes:
        attack: label of the attack.
        setting: cell.
        metric: metric that judges the attack.
        cause: that of a `Symptom`, ``few-victims``, ``attack`` or ``unknown``.
        told: sentence of the report, without the attack's name.
        measured: numbers of the sentence.
    """

    attack: str
    setting: dict[str, Any]
    metric: str
    cause: str
    told: str
    measured: dict[str, float]


Row = dict[str, Any]
"""Row of a table of results."""


def explain(results: pd.DataFrame, recording: Recording, *, seed: int) -> list[Cause]:
    """Causes of the failures in the results on a recording; symptoms are measured only if an attack failed.

    Args:
        results: means of the attacks, see `evaluation.summary.summarise`.
        recording: what the server saw.
        seed: seed of simulated clients and bootstraps.
    """
    empty = [
        Cause(row["attack"], setting_of(row), row["metric"], "no-reconstruction", sentence, numbers)
        for row, sentence, numbers in no_reconstructions(results)
    ]
    failed = near_guessing(results)
    if not failed:
        return empty
    first = recording.rounds[:_VIEWS]
    views = recording.views(victims_per_view=_VICTIMS, rounds=first, learner=recorded_learner(recording))
    found = symptoms(list(itertools.islice(views, _VIEWS)), seed=seed)
    return empty + [cause for row in failed for cause in _causes(row, results, found)]


def near_guessing(results: pd.DataFrame) -> list[Row]:
    """Attacks close to the best baseline by every metric that judges them, each with the first of them."""
    judged = [name for name, entry in METRICS.items() if entry.judged]
    attacks = results[results["role"].isin(_ATTACKS) & results["metric"].isin(judged)]
    ordered = attacks.sort_values("metric", key=lambda names: names.map(judged.index), kind="stable")
    keys = ["attack", *setting_columns(results)]
    near = ordered.assign(near=[is_near(row, results) for row in records(ordered)])
    failed = near[near.groupby(keys, dropna=False, sort=False)["near"].transform("all")] if len(near) else near
    return records(failed.drop(columns="near").drop_duplicates(keys))


def is_near(row: Row, results: pd.DataFrame) -> bool:
    """Whether a result is close to the best baseline of its setting, or its interval contains that baseline.

    Without guessing or a baseline, only a value of which more is better can be near: if its interval contains 0.
    """
    guess = best_guess(row, results)
    if guess is None:
        return not metric(row["metric"]).lower_is_better and bool(row["low"] <= 0)
    worst = row["high"] if metric(row["metric"]).lower_is_better else row["low"]
    return hardly_exceeds(row, results) or _gain(row, worst, guess) <= 0


def hardly_exceeds(row: Row, results: pd.DataFrame) -> bool:
    """Whether a mean is close to guessing or the best baseline of its setting."""
    guess = best_guess(row, results)
    return guess is not None and _gain(row, row["mean"], guess) < _NEAR


def best_guess(row: Row, results: pd.DataFrame) -> float | None:
    """Best of guessing and the baselines' means for the same question and cell; None if there is neither."""
    entry, cell = metric(row["metric"]), same_cell(row, results)
    means = cell["mean"][cell["role"] == "baseline"].tolist()
    means += [] if entry.guessing is None else [entry.guessing]
    if not means:
        return None
    return float(min(means) if entry.lower_is_better else max(means))


def same_cell(row: Row, results: pd.DataFrame) -> pd.DataFrame:
    """Results of the same question, metric and setting."""
    kept: pd.Series[bool] = (results["metric"] == row["metric"]) & (results["question"] == row["question"])
    for name in setting_columns(results):
        absent = row[name] is None or row[name] != row[name]
        kept &= results[name].isna() if absent else results[name] == row[name]
    return results[kept]


def sentences(causes: Sequence[Cause]) -> list[str]:
    """One sentence per cause, with all attacks that share it."""
    names: dict[str, list[str]] = {}
    for cause in causes:
        names.setdefault(cause.told, []).append(cause.attack)
    return [f"{', '.join(dict.fromkeys(attacks))}: {told}." for told, attacks in names.items()]


def _gain(row: Row, value: float, guess: float) -> float:
    """Position of a value on the scale from guessing (0) to certainty (1)."""
    certain = metric(row["metric"]).certainty
    return (value - guess) / (certain - guess) if certain != guess else 0.0


def _causes(row: Row, results: pd.DataFrame, found: Sequence[Symptom]) -> list[Cause]:
    """Symptoms that explain a row; else too few victims; else a better attack in the cell; else unknown."""
    own = [(s.cause, s.told, s.measured) for s in found if s.metrics is None or row["metric"] in s.metrics]
    causes, possible = ([one for one in own if (one[0] == POSSIBLE) is last] for last in (False, True))
    few, better = _few_victims(row, results), _succeeded(row, results)
    if not causes and few is not None:
        causes = [("few-victims", *few), *possible]
    elif not causes and better is not None:
        other = f"{better['attack']}: {better['metric']} {better['mean']:.3f}"
        causes = [("attack", f"another attack succeeds on the same recording ({other})", {"other": better["mean"]})]
    elif not causes:
        causes = possible or [
            ("unknown", "none of the measured causes (noise, rank, local steps, silence) applies", {})
        ]
    return [Cause(row["attack"], setting_of(row), row["metric"], *cause) for cause in causes]


def _few_victims(row: Row, results: pd.DataFrame) -> tuple[str, dict[str, float]] | None:
    guess = best_guess(row, results)
    guess = 0.0 if guess is None else guess
    low, high = sorted(_gain(row, end, guess) for end in (row["low"], row["high"]))
    if not (low <= 0 < _NEAR < high and high - low > _WIDE):
        return None
    told = f"too few victims: n = {row['n']}, {row['metric']} {row['low']:.3f} to {row['high']:.3f}"
    return told, {"n": row["n"]}


def _succeeded(row: Row, results: pd.DataFrame) -> Row | None:
    """Best other attack in the cell that did not fail."""
    cell = same_cell(row, results)
    others = cell[cell["role"].isin(_ATTACKS) & (cell["attack"] != row["attack"])]
    rows = [other for other in records(others) if not is_near(other, results)]
    sign = -1 if metric(row["metric"]).lower_is_better else 1
    return max(rows, key=lambda other: sign * other["mean"], default=None)
