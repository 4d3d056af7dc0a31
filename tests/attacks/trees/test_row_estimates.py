"""The accuracy of reconstructed rows, by hand."""

import pytest
import torch

from fedleak.attacks.trees.row_estimates import RowsOfClient, accuracy, false_certificates
from fedleak.core.table_columns import TableColumns

ROWS = torch.tensor([[0.0, 1.0], [10.0, 2.0], [20.0, 3.0], [30.0, 4.0]], dtype=torch.float64)
LABELS = torch.tensor([0, 0, 1, 1])


def guessed(rows: torch.Tensor, labels: torch.Tensor = LABELS) -> RowsOfClient:
    return RowsOfClient.guessed(rows, labels)


def test_the_rows_themselves_in_any_order_are_right() -> None:
    order = torch.tensor([2, 0, 3, 1])
    assert accuracy(guessed(ROWS[order], LABELS[order]), ROWS, LABELS, None) == (1, 1)


def test_a_number_is_right_within_a_third_of_a_standard_deviation() -> None:
    # The standard deviation of the first column is 11.18, of which 0.319 are 3.57.
    assert accuracy(guessed(ROWS + torch.tensor([3.5, 0.0])), ROWS, LABELS, None) == (1, 1)
    share, rows = accuracy(guessed(ROWS + torch.tensor([3.6, 0.0])), ROWS, LABELS, None)
    assert share == pytest.approx(2 / 3)
    assert rows == 0


def test_a_field_that_is_not_inferred_is_wrong() -> None:
    unknown = ROWS.clone()
    unknown[:, 1] = torch.nan
    assert accuracy(guessed(unknown), ROWS, LABELS, None)[0] == pytest.approx(2 / 3)


def test_a_field_without_a_true_value_does_not_count() -> None:
    partly = ROWS.clone()
    partly[3, 0] = torch.nan
    # Of the eleven fields that have a value, those of the first column are wrong: three.
    assert accuracy(guessed(ROWS), partly, LABELS, None) == (1, 1)
    far = ROWS + torch.tensor([99.0, 0.0])
    assert accuracy(guessed(far), partly, LABELS, None)[0] == pytest.approx(8 / 11)


def test_a_category_is_right_if_it_is_equal() -> None:
    columns = TableColumns(
        column=torch.tensor([0, 1, 1]),
        category=torch.tensor([False, True, True]),
        step=torch.ones(3, dtype=torch.float64),
        origin=torch.zeros(3, dtype=torch.float64),
        lowest=torch.zeros(3, dtype=torch.int64),
        highest=torch.tensor([30, 1, 1]),
    )
    rows = torch.tensor([[0.0, 1, 0], [30.0, 0, 1]], dtype=torch.float64)
    swapped = rows[:, [0, 2, 1]]
    labels = torch.tensor([0, 1])
    assert accuracy(guessed(rows, labels), rows, labels, columns)[0] == 1
    assert accuracy(guessed(swapped, labels), rows, labels, columns)[0] == pytest.approx(2 / 3)


def test_a_box_with_fewer_rows_than_certified_is_false() -> None:
    certain = torch.ones(2, dtype=torch.bool)
    low = torch.tensor([[5.0, 0.0], [5.0, 0.0]], dtype=torch.float64)
    high = torch.tensor([[15.0, 9.0], [15.0, 9.0]], dtype=torch.float64)
    claims = RowsOfClient(ROWS[:2], torch.tensor([0, 0]), low, high, certain)
    # One row of class 0 has a first field between 5 and 15.
    assert false_certificates(claims, ROWS, LABELS) == 1
    assert false_certificates(claims._replace(certified=torch.tensor([True, False])), ROWS, LABELS) == 0
    assert false_certificates(claims._replace(labels=torch.tensor([1, 1])), ROWS, LABELS) == 2
