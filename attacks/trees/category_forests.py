"""Categories that are predicted from the numbers of a row, by a random forest for each column."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedleak.attacks.trees.row_columns import PublicColumns
from fedleak.client.auxiliary_images import IMAGES
from fedleak.core.view import View

TREES_OF_FOREST = 100
_SEED = 42
"""Of the forests, as in the published code."""


@dataclass(frozen=True)
class CategoryForests:
    """A forest for each category, fitted to the rows of the adversary.

    Attributes:
        numbers: ``(D,)`` inputs that are numbers, from which categories are predicted.
        columns: inputs of each category.
        values: ``(L, K)`` possible values of the inputs of each category.
        forests: predicts the number of the value from the numbers.
    """

    numbers: Tensor
    columns: list[Tensor]
    values: list[Tensor]
    forests: list[Any]

    @classmethod
    def of(cls, view: View, columns: PublicColumns, few_levels: int) -> "CategoryForests":
        """The forests; a number with at most so many values is a category."""
        from sklearn.ensemble import RandomForestClassifier  # slow to import

        known = view.auxiliary[IMAGES].flatten(1).double()
        categories, numbers = [], []
        for column, inputs in enumerate(columns.groups):
            is_small = 0 < columns.levels(column) <= few_levels
            if bool(columns.is_category[column]) or is_small:
                categories.append(inputs)
            else:
                numbers.append(inputs)
        number_inputs = torch.cat([*numbers, torch.zeros(0, dtype=torch.int64)])
        # A table without numbers has one feature that is always the same.
        features = _features(known, number_inputs)
        values, forests = [], []
        for inputs in categories:
            of_column, places = torch.unique(known[:, inputs], dim=0, return_inverse=True)
            forest = RandomForestClassifier(n_estimators=TREES_OF_FOREST, random_state=_SEED, n_jobs=1)
            forests.append(forest.fit(features, places.numpy()))
            values.append(of_column)
        return cls(number_inputs, categories, values, forests)

    def filled(self, rows: Tensor) -> Tensor:
        """Rows ``(M, F)`` with predictions in the place of categories that are NaN."""
        filled = rows.clone()
        for inputs, values, forest in zip(self.columns, self.values, self.forests, strict=True):
            unknown = rows[:, inputs].isnan().any(1).nonzero().flatten()
            if len(unknown):
                predicted = torch.from_numpy(forest.predict(_features(rows[unknown], self.numbers)))
                filled[unknown[:, None], inputs] = values[predicted]
        return filled


def _features(rows: Tensor, numbers: Tensor) -> np.ndarray:
    if len(numbers) == 0:
        return np.zeros((len(rows), 1))
    return rows[:, numbers].numpy()
