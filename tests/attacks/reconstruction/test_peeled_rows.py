"""Ratios on the grid of a table are rows, and what they change is subtracted, at the rate on which most agree."""

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction.peeled_rows import DistinctRows, RowChanges, nearest_rows, peel_rows
from tests.reconstruction_toys import SMALL_TABLE


def errors(rows: Tensor) -> Tensor:
    """``(M, 2, 3)`` changes: the first neuron is excited by the second category, the second by large numbers, the third
    by all rows; the second class has the opposite sign, and another size."""
    size = torch.stack([rows[:, 2] * (2 + rows[:, 0]), (rows[:, 0] > 0.2) * (1 + rows[:, 0]), 1 + rows[:, 0] ** 2], 1)
    return torch.stack([size, -0.7 * size], dim=1)


CHANGES = RowChanges(SMALL_TABLE, errors)


def update_of(values: Tensor, classes: Tensor, copies: Tensor, rate: float) -> Tensor:
    points, biases = DistinctRows(values, classes, copies).changed_by(CHANGES)
    return -rate * torch.einsum("m,mn,md->nd", copies.double(), biases, points)


@pytest.mark.parametrize("declared", [0.1, 0.25, None], ids=["right rate", "wrong rate", "no rate"])
def test_rows_that_excite_a_neuron_alone_isolate_others(declared: float | None) -> None:
    """Two of three neurons show one row each, and the third shows the last row without them."""
    values, classes = torch.tensor([[1, 1], [3, 0], [0, 0]]), torch.tensor([0, 1, 1])
    found = peel_rows(update_of(values, classes, torch.ones(3).long(), 0.1), CHANGES, rate=declared)
    pairs = zip(found.values.tolist(), found.classes.tolist(), found.copies.tolist(), strict=True)
    assert {(*row, label, copies) for row, label, copies in pairs} == {(1, 1, 0, 1), (3, 0, 1, 1), (0, 0, 1, 1)}


def test_a_row_that_is_there_twice_has_two_copies_at_the_declared_rate() -> None:
    values, classes = torch.tensor([[1, 1], [3, 0]]), torch.tensor([0, 1])
    found = peel_rows(update_of(values, classes, torch.tensor([2, 1]), 0.1), CHANGES, rate=0.1)
    assert dict(zip(map(tuple, found.values.tolist()), found.copies.tolist(), strict=True)) == {(1, 1): 2, (3, 0): 1}


def test_distance_of_a_ratio_is_in_steps_of_a_number_and_units_of_a_category() -> None:
    values, distances = nearest_rows(SMALL_TABLE, torch.tensor([[0.1, 0.9, 0.0], [0.5, 0.7, 0.3]], dtype=torch.float64))
    assert values.tolist() == [[2, 0], [3, 0]]
    assert distances.tolist() == pytest.approx([0.2, 0.3])


def test_rows_without_any_have_the_shape_of_the_columns() -> None:
    assert DistinctRows.of({}, SMALL_TABLE).values.shape == (0, 2)
