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
    if ordered.empty:
        return []
    keys = ["attack", *setting_columns(results)]
    cells = Cells(results)
    near = ordered.assign(near=[cells.is_near(row) for row in records(ordered)])
    # An attack failed in a cell if it is near by each of its metrics there.
    failed = near[near.groupby(keys, dropna=False, sort=False)["near"].transform("all")]
    return records(failed.drop(columns="near").drop_duplicates(keys))


def no_reconstructions(results: pd.DataFrame) -> list[Cause]:
    """Attacks whose images are no reconstruction, whatever their PSNR.

    An attack has none in a cell if its images identify the true ones no better than chance, and their PSNR is at most
    12 dB or that of a baseline in this cell.
    """
    causes = []
    for _, cell in results.groupby(["question", *setting_columns(results)], dropna=False, sort=False):
        psnr = cell[cell["metric"] == "psnr"]
        identified = cell[cell["metric"] == "identified"]
        by_chance = cell[cell["metric"] == "identified-by-chance"]
        # What images reach that show nothing: 12 dB, or the best baseline of the cell.
        limit = max([_NO_IMAGE, *psnr.loc[psnr["role"] == "baseline", "mean"].dropna()])
        likeness = psnr.set_index("attack")["mean"]
        chance = by_chance.set_index("attack")["mean"]
        for row in records(identified[identified["role"] != "baseline"]):
            name = row["attack"]
            if name not in likeness or name not in chance or row["low"] > chance[name] or likeness[name] > limit:
                continue
            sentence = (
                f"no reconstruction: PSNR {likeness[name]:.1f} dB, and its images identify {row['mean']:.1%} of the"
                f" true ones, {chance[name]:.1%} by chance"
            )
            numbers = {"psnr": float(likeness[name]), "identified": row["mean"], "chance": float(chance[name])}
            causes.append(Cause("no-reconstruction", sentence, numbers).of(row))
    return causes


def sentences(causes: Sequence[Cause]) -> list[str]:
    """One sentence per cause, with all attacks that share it."""
    attacks: dict[str, list[str]] = defaultdict(list)
    for cause in causes:
        attacks[cause.sentence].append(cause.attack)
    return [f"{', '.join(dict.fromkeys(names))}: {sentence}." for sentence, names in attacks.items()]
