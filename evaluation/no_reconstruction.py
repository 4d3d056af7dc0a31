"""Sentence of a report for attacks whose images are no reconstruction, whatever their PSNR."""

from typing import Any

import pandas as pd

from evaluation.scores import records, setting_columns

Row = dict[str, Any]
_NO_IMAGE = 12.0
"""PSNR in dB that images of a data set reach with the mean image or with one another."""


def no_reconstructions(results: pd.DataFrame) -> list[tuple[Row, str, dict[str, float]]]:
    """Results ``identified`` of attacks without a reconstruction, each with a sentence and its numbers.

    An attack has none in a cell if its images identify the true ones no better than chance, and their PSNR is at most
    12 dB or that of a baseline in this cell.
    """
    found = []
    keys = ["question", *setting_columns(results)]
    for _, cell in results.groupby(keys, dropna=False, sort=False):
        means = {name: cell[cell["metric"] == name] for name in ("psnr", "identified", "identified-by-chance")}
        psnr = means["psnr"].set_index("attack")["mean"]
        chance = means["identified-by-chance"].set_index("attack")["mean"]
        baseline = means["psnr"].loc[means["psnr"]["role"] == "baseline", "mean"].max()
        limit = max(_NO_IMAGE, baseline) if baseline == baseline else _NO_IMAGE
        for row in records(means["identified"]):
            name = row["attack"]
            if row["role"] == "baseline" or name not in psnr or name not in chance:
                continue
            if row["low"] <= chance[name] and psnr[name] <= limit:
                sentence = (
                    f"no reconstruction: PSNR {psnr[name]:.1f} dB, and its images identify {row['mean']:.1%} of the"
                    f" true ones, {chance[name]:.1%} by chance"
                )
                numbers = {"psnr": float(psnr[name]), "identified": row["mean"], "chance": float(chance[name])}
                found.append((row, sentence, numbers))
    return found
