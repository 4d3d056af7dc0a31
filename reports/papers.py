"""The papers' own numbers, as data."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from reports.results import Paper

_FOLDER = Path(__file__).parent / "paper_values"


@functools.cache
def raifle_values() -> pd.DataFrame:
    """RAIFLE's tables V, VI and XIII; table IX's FNCF rows are table XIII's, rounded."""
    return pd.read_csv(_FOLDER / "raifle.csv", dtype={"epsilon": str, "defence": int})


def paper_value(attack: str, metric: str, setting: Mapping[str, Any]) -> Paper | None:
    """The number to set beside a cell, None where the paper has none.

    An attack that the paper does not have is set beside RAIFLE, the paper's own.

    Args:
        attack: name of the attack.
        metric: lower-case name.
        setting: holds ``data``, and ``epsilon`` and ``defence`` where they are columns.
    """
    if attack in {"chance", "popularity"}:
        return None
    values = raifle_values()
    found = values[
        (values["attack"] == ("imia" if attack == "imia" else "raifle"))
        & (values["data"] == setting.get("data"))
        & (values["metric"] == metric)
        & (values["statistic"] == "mean")
        & (values["epsilon"] == str(setting.get("epsilon", "inf")))
        & (values["defence"] == int(setting.get("defence", 0)))
    ]
    if found.empty:
        return None
    row = found.iloc[0]
    return Paper(float(row["value"]), f"RAIFLE Table {row['table']}")
