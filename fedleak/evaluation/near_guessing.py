"""Which attacks infer hardly more than what they are compared with, from results."""

from collections import defaultdict
from collections.abc import Sequence

import pandas as pd

from fedleak.core.metric_table import METRICS
from fedleak.evaluation.cause import Cause
from fedleak.evaluation.comparisons import Cells, Row
from fedleak.evaluation.judging import is_judged
from fedleak.evaluation.result_names import ATTACKS
from fedleak.evaluation.scores import records, setting_columns

_NO_IMAGE = 12.0
"""PSNR in dB that images of a data set reach with the mean image or with one another."""


def near_guessing(results: pd.DataFrame) -> list[Row]:
    """Attacks close to their comparison by every metric that judges them, each with the first of them."""
    order = list(METRICS)
    attacks = results[results["role"].isin(ATTACKS)]
    attacks = attacks[is_judged(attacks)]
    ordered = attacks.sort_values("metric", key=lambda names: names.map(order.index), kind="stable")
    keys = ["attack", *setting_columns(results)]
    cells = Cells(results)
    near = ordered.assign(near=[cells.is_near(row) for row in records(ordered)])
    failed = near[near.groupby(keys, dropna=False, sort=False)["near"].transform("all")] if len(near) else near
    return records(failed.drop(columns="near").drop_duplicates(keys))


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
