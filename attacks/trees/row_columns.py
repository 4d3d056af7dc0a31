"""What is public about the columns of a table: their ranges, and which of them have few values."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.client.auxiliary_images import IMAGES, LABELS
from fedleak.core.errors import ViewError
from fedleak.core.table_columns import COLUMNS, TableColumns
from fedleak.core.view import View


@dataclass(frozen=True)
class PublicColumns:
    """Columns as the network gets them, and rows of the adversary.

    Attributes:
        lowest: ``(F,)`` float64 least value of each input.
        highest: ``(F,)`` float64 largest value.
        step: ``(F,)`` float64 distance of two values; 0 if unknown.
        groups: inputs of each column: one of a number, several of a category.
        is_category: ``(C,)`` bool, whether the inputs of a column are a one-hot vector.
    """

    lowest: Tensor
    highest: Tensor
    step: Tensor
    groups: list[Tensor]
    is_category: Tensor

    @classmethod
    def of(cls, view: View) -> "PublicColumns":
        """The description of the columns, or the range of the adversary's rows where there is none."""
        if COLUMNS in view.auxiliary:
            columns = TableColumns.of(view.auxiliary[COLUMNS])
            lowest = columns.origin + columns.lowest * columns.step
            highest = columns.origin + columns.highest * columns.step
            return cls(lowest, highest, columns.step, columns.groups, columns.is_category)
        rows, _ = known_rows(view)
        groups = [torch.tensor([number]) for number in range(rows.shape[1])]
        lowest, highest = rows.amin(0), rows.amax(0)
        is_category = torch.zeros(len(groups), dtype=torch.bool)
        return cls(lowest, highest, torch.zeros_like(lowest), groups, is_category)

    def levels(self, column: int) -> int:
        """Number of values of a column; 0 if it is unknown."""
        inputs = self.groups[column]
        if bool(self.is_category[column]):
            return len(inputs)
        step = float(self.step[inputs[0]])
        if step == 0:
            return 0
        return round(float(self.highest[inputs[0]] - self.lowest[inputs[0]]) / step) + 1

    def into_box(self, rows: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """``(M, F)`` values nearest to rows ``(M, F)`` that are in boxes ``(M, F)`` and on the grid of the column."""
        step = self.step.clamp(min=1e-9)
        # The least value of the grid that is not below the box, and the largest that is below its end.
        first = self.lowest + ((low.maximum(self.lowest) - self.lowest) / step - 1e-6).ceil() * step
        last = self.lowest + ((high.minimum(self.highest + step) - self.lowest) / step - 1e-6).ceil() * step - step
        values = rows.maximum(first).minimum(last.maximum(first))
        for column, inputs in enumerate(self.groups):
            if bool(self.is_category[column]):
                values[:, inputs] = _one_hot(rows[:, inputs], low[:, inputs], high[:, inputs])
        return values


def _one_hot(rows: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """``(M, K)`` one-hot vectors nearest to rows ``(M, K)`` among those in boxes."""
    is_excluded = high <= 1
    is_forced = low > 0
    preference = rows.masked_fill(is_excluded, -1.0) + 10 * is_forced
    return torch.zeros_like(rows).scatter(1, preference.argmax(1, keepdim=True), 1.0)


def known_rows(view: View) -> tuple[Tensor, Tensor]:
    """Rows ``(K, F)`` float64 and classes ``(K,)`` int64 of the adversary.

    Raises:
        ViewError: it has none.
    """
    if IMAGES not in view.auxiliary or LABELS not in view.auxiliary:
        raise ViewError("expected rows of the adversary with their classes, got none in the auxiliary data")
    return view.auxiliary[IMAGES].flatten(1).double(), view.auxiliary[LABELS].flatten().long()
