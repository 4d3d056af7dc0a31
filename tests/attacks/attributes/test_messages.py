"""Blocks of columns of the messages, and inner products of a round that is read in parts."""

from collections.abc import Iterator

import pytest
import torch

from fedleak.attacks.attributes.messages import blocks, products_of_rounds
from fedleak.core.history import History
from fedleak.core.view import RoundView
from tests.attacks.runs import plain_view


@pytest.mark.parametrize("numbers", [1, 8, 1000])
def test_blocks_of_served_rows_are_the_columns_of_the_whole_table(
    monkeypatch: pytest.MonkeyPatch, numbers: int
) -> None:
    monkeypatch.setattr("fedleak.attacks.attributes.messages._NUMBERS", numbers)
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


@pytest.mark.parametrize("held", [1, 50, 1000])
def test_products_of_a_round_in_parts_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr("fedleak.attacks.attributes.messages._IN_MEMORY", held)
    deltas = {"a.weight": torch.randn(7, 3, 2), "a.bias": torch.randn(7, 3), "b.weight": torch.randn(7, 5)}
    whole = plain_view(7, deltas=deltas)
    read: list[int] = []

    def parts(number: int, clients: set[int]) -> Iterator[RoundView]:
        for own in ([5, 2], [6], [0, 4, 1], [3]):
            if chosen := [name for name in own if name in clients]:
                read.append(len(chosen))
                yield whole.select(torch.tensor(chosen))

    view = History(**whole.common() | {"deltas": {}}, sent_in=torch.zeros(7, dtype=torch.int64), read_parts=parts)
    ((senders, layers),) = products_of_rounds(view)
    assert torch.equal(senders, torch.arange(7))
    for layer, names in {"a": ("a.weight", "a.bias"), "b": ("b.weight",)}.items():
        vectors = torch.cat([deltas[name].flatten(1) for name in names], dim=1)
        assert torch.allclose(layers[layer], (vectors @ vectors.T).double(), atol=1e-5)
    assert sum(read) == {1: 7 + 5 + 4 + 1, 50: 7 + 4 + 1, 1000: 7}[held]
