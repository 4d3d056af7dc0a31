"""How many numbers and categories of reconstructed rows of a table are right."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedleak.core.table_columns import TableColumns


def matching(guesses: Tensor, values: Tensor, columns: TableColumns) -> tuple[Tensor, Tensor]:
    """Places of guesses and of values, row by row, by the assignment of the most right columns.

    Args:
        guesses: ``(M, C)`` int64 values of the reconstructed rows.
        values: ``(N, C)`` int64 values of the rows.
        columns: the columns, of whose numbers a step too much or too little is right.
    """
    from scipy.optimize import linear_sum_assignment  # slow to import

    right = torch.stack([columns.within_a_step(guesses, one).sum(1) for one in values], dim=1)
    chosen, of = linear_sum_assignment(right.numpy(), maximize=True)
    return torch.from_numpy(chosen), torch.from_numpy(of)


def row_accuracy(guesses: Sequence[Tensor], originals: Sequence[Tensor], columns: TableColumns) -> dict[str, Tensor]:
    """``numbers-within-step`` and ``categories`` ``(V,)``: shares of each client's numbers and categories.

    Each client has ``guesses (M, C)`` and ``originals (N, C)``, values of rows, matched one to one; rows without a
    guess are wrong. NaN without such columns or without rows.

    References:
        Vero et al., "TabLeak: Tabular Data Leakage in Federated Learning", ICML 2023, arXiv:2210.01785, section 5: the
        matching, and the tolerance of a number, of 0.319 standard deviations there.
    """
    shares = []
    for own, true in zip(guesses, originals, strict=True):
        right = torch.zeros(true.shape, dtype=torch.float64)
        if len(own) and len(true):
            chosen, of = matching(own, true, columns)
            right[of] = columns.within_a_step(own[chosen], true[of]).double()
        shares.append([right[:, kind].mean() for kind in (~columns.is_category, columns.is_category)])
    numbers, categories = torch.tensor(shares, dtype=torch.float64).reshape(-1, 2).unbind(1)
    return {"numbers-within-step": numbers, "categories": categories}
