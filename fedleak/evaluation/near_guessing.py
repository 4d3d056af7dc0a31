"""Which attacks infer hardly more than guessing, from results."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pandas as pd

from fedleak.core.metric_table import METRICS, metric
from fedleak.evaluation.cause import Cause
from fedleak.evaluation.judging import is_judged
from fedleak.evaluation.luck import LEVEL, LUCK
from fedleak.evaluation.scores import records, setting_columns

NEAR = 0.2
"""Share of the range from guessing to certainty below which an attack counts as failed; an AUC of 0.6."""
_NO_IMAGE = 12.0
"""PSNR in dB that images of a data set reach with the mean image or with one another."""
ATTACKS = ("ours", "published")
"""Roles of attacks; the other lines are comparisons."""
Row = dict[str, Any]
"""Row of a table of results."""


def near_guessing(results: pd.DataFrame) -> list[Row]:
    """Attacks close to the best baseline by every metric that judges them, each with the first of them."""
    order = list(METRICS)
    attacks = results[results["role"].isin(ATTACKS)]
    attacks = attacks[is_judged(attacks)]
    ordered = attacks.sort_values("metric", key=lambda names: names.map(order.index), kind="stable")
    keys = ["attack", *setting_columns(results)]
    near = ordered.assign(near=[is_near(row, results) for row in records(ordered)])
    failed = near[near.groupby(keys, dropna=False, sort=False)["near"].transform("all")] if len(near) else near
    return records(failed.drop(columns="near").drop_duplicates(keys))


def is_near(row: Row, results: pd.DataFrame) -> bool:
    """Whether a result is close to the best baseline of its setting, or may be better than it by luck.

    Where the probability of luck is unknown, the interval must not contain that baseline. Without guessing or a
    baseline, only a value of which more is better can be near: if its interval contains 0.
    """
    guess = best_guess(row, results)
    if guess is None:
        return not metric(row["metric"]).lower_is_better and bool(row["low"] <= 0)
    if hardly_exceeds(row, results):
        return True
    probability = row.get(LUCK, math.nan)
    if probability == probability:
        return bool(probability > LEVEL)
    worst = row["high"] if metric(row["metric"]).lower_is_better else row["low"]
    return gain_of(row, worst, guess) <= 0


def hardly_exceeds(row: Row, results: pd.DataFrame) -> bool:
    """Whether a mean is close to guessing or the best baseline of its setting."""
    guess = best_guess(row, results)
    return guess is not None and gain_of(row, row["mean"], guess) < NEAR


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


def no_reconstructions(results: pd.DataFrame) -> list[Cause]:
    """Attacks whose images are no reconstruction, whatever their PSNR.

    An attack has none in a cell if its images identify the true ones no better than chance, and their PSNR is at most
    12 dB or that of a baseline in this cell.
    """
    found, names = [], ("psnr", "identified", "identified-by-chance")
    for _, cell in results.groupby(["question", *setting_columns(results)], dropna=False, sort=False):
        psnr, identified, by_chance = (cell[cell["metric"] == name] for name in names)
        limit = max([_NO_IMAGE, *psnr.loc[psnr["role"] == "baseline", "mean"].dropna()])
        likeness, chance = (table.set_index("attack")["mean"] for table in (psnr, by_chance))
        for row in records(identified[identified["role"] != "baseline"]):
            name = row["attack"]
            if name not in likeness or name not in chance or row["low"] > chance[name] or likeness[name] > limit:
                continue
            sentence = (
                f"no reconstruction: PSNR {likeness[name]:.1f} dB, and its images identify {row['mean']:.1%} of the"
                f" true ones, {chance[name]:.1%} by chance"
            )
            numbers = {"psnr": float(likeness[name]), "identified": row["mean"], "chance": float(chance[name])}
            found.append(Cause("no-reconstruction", sentence, numbers).of(row))
    return found


def sentences(causes: Sequence[Cause]) -> list[str]:
    """One sentence per cause, with all attacks that share it."""
    attacks: dict[str, list[str]] = defaultdict(list)
    for cause in causes:
        attacks[cause.sentence].append(cause.attack)
    return [f"{', '.join(dict.fromkeys(names))}: {sentence}." for sentence, names in attacks.items()]


def gain_of(row: Row, value: float, guess: float) -> float:
    """Position of a value on the scale from guessing (0) to certainty (1)."""
    certain = metric(row["metric"]).certainty
    return (value - guess) / (certain - guess) if certain != guess else 0.0
