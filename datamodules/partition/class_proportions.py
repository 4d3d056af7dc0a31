"""Proportions of classes -> numbers of examples; the compositions that papers printed."""

import functools
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from protocol.errors import InputError

_DECAF = Path(__file__).parent / "compositions" / "decaf.csv"
_TOLERANCE = 1e-3
"""How far proportions may be from one in sum: Decaf prints percentages with two digits that sum to 99.99 or 100.05."""


@functools.cache
def decaf_compositions() -> pd.DataFrame:
    """Decaf's tables III to VII: columns ``table, data, user, class, proportion``; users from 1, classes from 0."""
    return pd.read_csv(_DECAF)


def has_composition(data: str) -> bool:
    """Whether Decaf prints the composition of users on a data set, named by its folder."""
    return bool((decaf_compositions()["data"] == data).any())


def decaf_composition(data: str) -> Tensor:
    """``(C, K)`` float64 true proportions of the classes of Decaf's users on a data set, named by its folder.

    Raises:
        InputError: Decaf has no such data set.
    """
    values = decaf_compositions()
    chosen = values[values["data"] == data]
    if chosen.empty:
        raise InputError(
            expected=f"one of Decaf's data sets ({', '.join(values['data'].unique())})",
            found=data,
            way_out="Name one of them, or give the proportions as a list with one row per client.",
        )
    table = chosen.pivot_table(index="user", columns="class", values="proportion")
    return torch.tensor(table.to_numpy(dtype="float64"))


def composition_counts(proportions: Tensor, sizes: int | Sequence[int]) -> Tensor:
    """Whole numbers of examples, as near to the proportions as they can be (largest remainders).

    Args:
        proportions: ``(C, K)``, each row summing to one up to rounding.
        sizes: examples of each client, or of all.

    Returns:
        ``(C, K)`` int64 with row sums ``sizes``; a class of proportion zero gets none.

    Raises:
        InputError: a row has a negative entry or does not sum to one, or the number of sizes differs from the rows'.
    """
    shares = proportions.double()
    totals = shares.sum(1)
    bad = (shares < 0).any(1) | ~((totals - 1).abs() <= _TOLERANCE)
    if bad.any():
        row = int(bad.nonzero()[0])
        raise InputError(
            expected="proportions of at least 0 that sum to one",
            found=f"a sum of {float(totals[row]):.4g} for client {row}: {shares[row].tolist()}",
            way_out="Mend the composition.",
        )
    given = torch.tensor([sizes] * len(shares) if isinstance(sizes, int) else list(sizes))
    if len(given) != len(shares):
        raise InputError(
            expected=f"one size, or one for each of {len(shares)} clients",
            found=f"{len(given)} sizes",
            way_out="Give as many sizes as the composition has rows.",
        )
    exact = shares / totals[:, None] * given[:, None]
    counts = exact.floor()
    missing = given - counts.sum(1)
    rank = (exact - counts).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    return (counts + (rank < missing[:, None])).long()
