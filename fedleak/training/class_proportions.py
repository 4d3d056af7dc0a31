"""Class proportions of clients, converted to numbers of examples; and the proportions printed by Decaf."""

import functools
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from fedleak.core.errors import InputError, require
from fedleak.core.largest_remainders import largest_remainders

_DECAF = Path(__file__).parent / "compositions" / "decaf.csv"
_TOLERANCE = 1e-3
"""Tolerance of the sum of proportions: Decaf prints percentages with two digits that sum to 99.99 or 100.05."""


@functools.cache
def decaf_compositions() -> pd.DataFrame:
    """Decaf's tables III to VII: columns ``table, data, user, class, proportion``; users from 1, classes from 0."""
    return pd.read_csv(_DECAF)


def decaf_composition(data: str) -> Tensor:
    """``(C, K)`` float64 class proportions of Decaf's users for a data set, given by its folder."""
    values = decaf_compositions()
    chosen = values[values["data"] == data]
    way_out = "Name one of them, or give the proportions as a list with one row per client."
    require(not chosen.empty, f"one of Decaf's data sets ({', '.join(values['data'].unique())})", data, way_out)
    table = chosen.pivot_table(index="user", columns="class", values="proportion")
    return torch.tensor(table.to_numpy(dtype="float64"))


def composition_counts(proportions: Tensor, sizes: int | Sequence[int]) -> Tensor:
    """Whole numbers of examples closest to proportions, see `largest_remainders`.

    Args:
        proportions: ``(C, K)``; each row sums to one up to rounding.
        sizes: number of examples of every client, or of each.

    Returns:
        ``(C, K)`` int64 with row sums ``sizes``; a class with proportion zero gets none.
    """
    shares = proportions.double()
    totals = shares.sum(1)
    bad = (shares < 0).any(1) | ~((totals - 1).abs() <= _TOLERANCE)
    if bad.any():
        row = int(bad.nonzero()[0])
        raise InputError(
            expected="proportions of at least 0 that sum to one",
            found=f"a sum of {float(totals[row]):.4g} for client {row}: {shares[row].tolist()}",
            way_out="Correct the composition.",
        )
    sizes_of_clients = [sizes] * len(shares) if isinstance(sizes, int) else list(sizes)
    client_sizes = torch.tensor(sizes_of_clients)
    expected = f"one size, or one for each of {len(shares)} clients"
    way_out = "Give as many sizes as the composition has rows."
    require(len(client_sizes) == len(shares), expected, f"{len(client_sizes)} sizes", way_out)
    # Shares are made to sum to one, so that sizes are met exactly.
    return largest_remainders(shares / totals[:, None], client_sizes)
