"""Decaf's own numbers, as data, and the distances that follow from them."""

import functools
from pathlib import Path

import numpy as np
import pandas as pd

from datamodules.composition import decaf_compositions

_VALUES = Path(__file__).parent / "paper_values" / "decaf.csv"


@functools.cache
def decaf_values() -> pd.DataFrame:
    """The numbers of Decaf's tables III to XV.

    ``proportion`` is what the attack inferred of a user and class; a class without a row was called null. ``l1``,
    ``l2`` and ``linf`` are printed for tables IX, X and XII to XV only, for the attack and for a random guess
    (``chance``). The captions of IX, X, XII and XIII are lost: that IX and XII are ResNet18 and X and XIII VGG16 is
    their order in section V-B, and agrees with its saying that VGG16 has the larger distances. Of table XI the privacy
    budgets are lost; its rows stand in the order of the noise multipliers of section V-C, and it names no data set.
    """
    values = pd.read_csv(_VALUES, dtype={"user": "Int64", "class": "Int64"})
    words = ["attack", "data", "network", "defence", "variant", "step"]
    values[words] = values[words].fillna("")
    return values


@functools.cache
def decaf_distances() -> pd.DataFrame:
    """L1, L2 and L-infinity between printed true and inferred proportions, for every table and user that has both.

    Columns ``table, data, network, variant, user, l1, l2, linf``; for tables III to VII, whose distances are only drawn
    (figure 4), this is the paper's number up to the rounding of its percentages.
    """
    inferred = decaf_values()
    inferred = inferred[inferred["metric"] == "proportion"]
    cells = inferred[["table", "data", "network", "variant", "user"]].drop_duplicates()
    truth = decaf_compositions()[["data", "user", "class", "proportion"]]
    every = cells.merge(truth, on=["data", "user"])
    every = every.merge(inferred[["table", "user", "class", "value"]], on=["table", "user", "class"], how="left")
    every["error"] = (every["proportion"] - every["value"].fillna(0.0)).abs()
    keys = ["table", "data", "network", "variant", "user"]
    errors = every.groupby(keys, sort=False)["error"]
    return errors.agg(
        l1="sum",
        l2=lambda error: float(np.sqrt((error**2).sum())),
        linf="max",
    ).reset_index()
