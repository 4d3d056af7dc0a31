"""The numbers of deanonymization's tables 2 to 5, as data."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from reports.results import Paper

_VALUES = Path(__file__).parent / "paper_values" / "deanonymization.csv"
_BESIDE = {
    **dict.fromkeys(("centred-svm", "fingerprint", "fingerprint-linked"), "reid-mlp"),
    **dict.fromkeys(("matching-siamese", "matching-fingerprint", "matching-fingerprint-linked"), "matching-mlp"),
}
"""What the paper has no number of, the Siamese network too, stands beside the attack that it finds best."""
_KEYS = {"data", "prior", "layer"}
"""Keys of a setting that the tables have; with any other the cell is none of theirs."""


@functools.cache
def deanonymization_values() -> pd.DataFrame:
    """Tables 2 (``global-model`` and ``central-model``), 3, 4 and 5; shares where the paper prints percentages.

    ``times-chance`` is as the paper rounds it.
    """
    return pd.read_csv(_VALUES, dtype={"layer": str}).fillna({"layer": ""})


def deanonymization_value(attack: str, metric: str, setting: Mapping[str, Any]) -> Paper | None:
    """The number to set beside a cell, None where the paper has none."""
    if not set(setting) <= _KEYS:
        return None
    values = deanonymization_values()
    key = {
        "attack": _BESIDE.get(attack, attack),
        "data": setting["data"],
        "prior": setting["prior"],
        "layer": setting.get("layer", ""),
        "metric": metric,
    }
    kept = values["value"].notna()
    for name, value in key.items():
        kept &= values[name] == value
    found = values[kept]
    if found.empty:
        return None
    row = found.iloc[0]
    return Paper(float(row["value"]), f"Deanonymization Table {row['table']}")
