"""Rows are certain only if no other rows make the same update: adjacent rows and copies that may move apart."""

from collections import Counter

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction import LinearInversion
from fedleak.attacks.reconstruction.linear_layer import LinearEstimate
from fedleak.attacks.reconstruction.peeled_rows import DistinctRows, RowChanges
from fedleak.attacks.reconstruction.row_certificate import certified_rows, remade_step
from fedleak.client.nets.classifiers import ClassifierOptions
from fedleak.core.seeding import generator_for
from fedleak.core.table_columns import TableColumns
from fedleak.datamodules.tables.schema import Column, encode
from tests.attacks.runs import run
from tests.tables_of_people import people, people_view

FINE = (Column(name="number", kind="number", lowest=0, highest=199), Column(name="category", values=["a", "b", "c"]))
ONE_LAYER = ClassifierOptions(name="mlp", hidden=40)


def drawn(columns: tuple[Column, ...], count: int, *, seed: int) -> tuple[TableColumns, Tensor]:
    draws = generator_for(seed, "values")
    values = torch.stack([torch.randint(column.size, (count,), generator=draws) for column in columns], dim=1)
    values[:, 0] = values[:, 0].clamp(10, columns[0].size - 10)
    return encode(columns, values).columns, values


def false_and_certain(estimate: LinearEstimate, values: Tensor, columns: TableColumns) -> tuple[int, int]:
    """Rows of all clients that are certain, and how many of these are none of the client."""
    false = certain = 0
    for victim, own in enumerate(values.reshape(len(estimate.count), -1, values.shape[1])):
        rows = columns.decode(estimate.records[victim][estimate.certified[victim]]).tolist()
        false += (Counter(map(tuple, rows)) - Counter(map(tuple, own.tolist()))).total()
        certain += len(rows)
    return false, certain


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("listed", [False, True])
def test_the_level_between_two_rows_is_not_certain(double: bool, listed: bool) -> None:
    """Their update is nearly that of twice the row between them."""
    columns, values = drawn(FINE, 6, seed=0) if listed else people(6)[:2]
    values[1::2] = values[::2]
    values[1::2, 0] += 2
    view, _ = people_view(
        values, torch.zeros(6).long(), columns, clients=3, double=double, network=ONE_LAYER if listed else None
    )
    false, _ = false_and_certain(run(LinearInversion(failures=1), view, LinearEstimate), values, columns)
    assert false == 0


def test_rows_on_a_coarse_grid_are_certain_also_next_to_each_other_and_twice() -> None:
    coarse = (Column(name="number", kind="number", lowest=0, highest=29), FINE[1])
    columns, values = drawn(coarse, 12, seed=1)
    values[1], values[3] = values[0], values[2]
    values[3, 0] += 1
    view, _ = people_view(values, torch.zeros(12).long(), columns, clients=3, network=ONE_LAYER)
    assert false_and_certain(run(LinearInversion(), view, LinearEstimate), values, columns) == (0, 12)


def steep(rows: Tensor) -> Tensor:
    """``(M, 1, 2)`` changes of two neurons that differ strongly between rows."""
    return torch.stack([1 + rows[:, 0] ** 2, 2 - rows[:, 1]], dim=1)[:, None]


def flat(rows: Tensor) -> Tensor:
    """The same changes for all rows."""
    return torch.ones(len(rows), 1, 2, dtype=torch.float64)


@pytest.mark.parametrize(
    ("errors", "copies", "certain"),
    [
        (steep, [1, 1], [True, True]),
        (flat, [1, 1], [False, False]),
        (steep, [2, 1], [True, True]),
        (flat, [2], [False]),
    ],
    ids=["different errors", "equal errors", "a copy, different errors", "a copy, equal errors"],
)
def test_rows_whose_changes_are_equal_may_take_from_each_other(
    errors: object, copies: list[int], certain: list[bool]
) -> None:
    columns, _ = drawn(FINE, 4, seed=2)
    changes = RowChanges(columns, errors)  # type: ignore[arg-type]
    values = torch.tensor([[50, 0], [120, 1]])[: len(copies)]
    distinct = DistinctRows(values, torch.zeros(len(copies)).long(), torch.tensor(copies))
    rows = -0.1 * remade_step(torch.zeros(2, 5).double(), distinct, *distinct.changed_by(changes))[0]
    options = {"floor": 1e-7 * float(rows.norm()), "precision": 1e-9, "declared_rate": 0.1}
    assert certified_rows(rows, distinct, changes, only_numbers=True, **options).tolist() == certain
    assert not bool(certified_rows(rows + 0.01, distinct, changes, only_numbers=True, **options).any())
