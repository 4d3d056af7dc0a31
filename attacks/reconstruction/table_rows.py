"""How many numbers and categories of reconstructed rows of a table are right."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedleak.core.table_columns import TableColumns


def matching(guesses: Tensor, values: Tensor, columns: TableColumns) -> tuple[Tensor, Tensor]:
    """Numbers of guesses and of values, row by row, by the assignment of the most right columns.

    Args:
        guesses: ``(M, C)`` int64 values of the reconstructed rows.
        values: ``(N, C)`` int64 values of the rows.
        columns: the columns, of whose numbers a step too much or too little is right.
    """
    from scipy.optimize import linear_sum_assignment  # slow to import

    right_columns = torch.stack([columns.within_a_step(guesses, row).sum(1) for row in values], dim=1)
    chosen, of = linear_sum_assignment(right_columns.numpy(), maximize=True)
    return torch.from_numpy(chosen), torch.from_numpy(of)


def row_accuracy(guesses: Sequence[Tensor], originals: Sequence[Tensor], columns: TableColumns) -> dict[str, Tensor]:
    """``numbers-within-step`` and ``categories`` ``(V,)``: shares of each client's numbers and categories.

    Each client has ``guesses (M, C)`` and ``originals (N, C)``, values of rows, matched one to one; rows without a
    guess are wrong. NaN without such columns or without rows.

    References:
        [Vero23], section 5: the matching, and the tolerance of a number, of 0.319 standard deviations there.
    """
    numbers, categories = list[Tensor](), list[Tensor]()
    for guess, true in zip(guesses, originals, strict=True):
        is_right = torch.zeros(true.shape, dtype=torch.float64)
        if len(guess) and len(true):
            chosen, of = matching(guess, true, columns)
            is_right[of] = columns.within_a_step(guess[chosen], true[of]).double()
        is_category = columns.is_category
        numbers.append(is_right[:, ~is_category].mean())
        categories.append(is_right[:, is_category].mean())
    return {
        "numbers-within-step": torch.stack(numbers),
        "categories": torch.stack(categories),
    }
