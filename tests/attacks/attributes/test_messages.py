"""Blocks of columns of the messages."""

import pytest
import torch

from attacks.attributes.messages import blocks
from tests.attacks.runs import plain_view


@pytest.mark.parametrize("numbers", [1, 8, 1000])
def test_blocks_of_served_rows_are_the_columns_of_the_whole_table(
    monkeypatch: pytest.MonkeyPatch, numbers: int
) -> None:
    monkeypatch.setattr("attacks.attributes.messages._NUMBERS", numbers)
    rows = torch.arange(1.0, 13.0).reshape(2, 3, 2)
    view = plain_view(
        2,
        deltas={"table": rows * torch.tensor([[1, 1, 1], [1, 1, 0]])[..., None]},
        model={"table": torch.zeros(5, 2)},
        served=torch.tensor([[4, 0, 2], [1, 3, -1]]),
        row_parameters=frozenset({"table"}),
    )
    whole = torch.zeros(2, 5, 2)
    whole[0, [4, 0, 2]], whole[1, [1, 3]] = rows[0], rows[1, :2]
    assert torch.equal(torch.cat(list(blocks(view, "table")), dim=1), whole.flatten(1))
