"""Rows of a recording as it is, next to those under defences that were tried on it."""

import pandas as pd

from fedleak.evaluation.scores import SETTING

DEFENCE = "defence"
"""Setting of a result of a what-if: the defence with its strength."""
NONE = "none"
"""Its value without a defence."""
COSINE = "aggregate-cosine"
"""Metric that every what-if has: the cosine of the round's mean update with and without a defence."""


def as_recorded(table: pd.DataFrame) -> pd.DataFrame:
    """Results or scores without those under defences that were tried on a recording, see `fedleak.evaluation.what_if`.

    A table that holds only such rows stays as it is.
    """
    if not (table["metric"] == COSINE).any():
        return table
    defences = table[SETTING + DEFENCE]
    plain = table[(defences == NONE) | defences.isna()]
    if plain.empty:
        return table
    return plain
