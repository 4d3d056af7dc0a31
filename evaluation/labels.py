"""Human-readable labels of table cells and numbers."""

from collections.abc import Collection, Mapping
from typing import Any

import pandas as pd

from evaluation.scores import SETTING, setting_columns

_SELF_EXPLAINING = frozenset({"data", "ranker", "click_model"})
"""Keys whose values need no name."""


def differing(table: pd.DataFrame) -> set[str]:
    """Keys of the setting that do not have one value in all rows; a key that some rows lack is one of them."""
    columns = setting_columns(table)
    return {name.removeprefix(SETTING) for name in columns if table[name].map(repr).nunique(dropna=False) > 1}


def describe(setting: Mapping[str, Any], keys: Collection[str] | None = None) -> str:
    """A setting in a few words: all of it, or only some keys."""
    kept = {key: value for key, value in setting.items() if keys is None or key in keys}
    return ", ".join(str(value) if key in _SELF_EXPLAINING else f"{key} {value}" for key, value in kept.items())


def number(value: float) -> str:
    """Three decimals, or scientific notation for what would otherwise read 0.000."""
    return f"{value:.3f}" if value == 0 or not abs(value) < 0.0005 else f"{value:.1e}"
