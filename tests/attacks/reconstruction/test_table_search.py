"""Rows of a table with more possible rows than can be listed: at least what ratios and peeling find, and certain."""

import dataclasses

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction import LinearInversion, LinearPeeling, LinearRatio
from fedleak.attacks.reconstruction.estimates import ReconstructionAttack
from fedleak.attacks.reconstruction.found_records import FoundRecords
from fedleak.attacks.reconstruction.linear_layer import LinearEstimate
from fedleak.attacks.reconstruction.table_search import TableUpdate, distinct_rows, search_table
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.view import RoundView
from tests.attacks.runs import of_noise, of_others, run, with_deltas
from tests.reconstruction_toys import SMALL_TABLE
from tests.tables_of_people import people, people_view


def drawn(clients: int, records: int, *, double: bool = False, seed: int = 0) -> tuple[RoundView, dict[str, Tensor]]:
    columns, values, labels = people(clients * records, seed=seed)
    return people_view(values, labels, columns, clients=clients, double=double, seed=seed)


def scores(view: RoundView, truth: dict[str, Tensor], attack: ReconstructionAttack | None = None) -> dict[str, Tensor]:
    return dict(run(attack or LinearInversion(failures=1), view, LinearEstimate).score(view, truth).metrics)


@pytest.mark.parametrize("double", [False, True])
def test_eight_rows_of_billions_of_possible_ones_are_exact_and_certain(double: bool) -> None:
    view, truth = drawn(3, 8, double=double)
    found = scores(view, truth)
    for name in ("recovered", "certified", "label-accuracy"):
        assert found[name].tolist() == [1, 1, 1], name
    assert found["false-certified"].tolist() == [0, 0, 0]


def test_where_not_all_rows_are_found_the_others_stay_without_a_certificate() -> None:
    view, truth = drawn(3, 32)
    found = scores(view, truth)
    for attack in (LinearPeeling(), LinearRatio()):
        assert bool((found["recovered"] >= scores(view, truth, attack)["recovered"]).all())
    assert found["certified"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("times", [2, 3])
def test_rows_are_certain_once_if_a_multiple_of_their_number_is_reported(times: int) -> None:
    view, truth = drawn(2, 8, double=True)
    found = scores(dataclasses.replace(view, example_counts=times * view.example_counts), truth)
    assert found["recovered"].tolist() == found["certified"].tolist() == [1, 1]
    assert found["false-certified"].tolist() == [0, 0]


def test_scaled_updates_are_solved_at_a_rate_of_their_own() -> None:
    view, truth = drawn(2, 8)
    found = scores(with_deltas(view, lambda delta: 0.37 * delta), truth)
    assert found["recovered"].tolist() == found["certified"].tolist() == [1, 1]


@pytest.mark.integration
def test_nothing_is_certain_in_noise_or_of_another_client() -> None:
    view, truth = drawn(3, 8)
    assert scores(of_noise(view), truth)["certified"].tolist() == [0, 0, 0]
    assert scores(of_others(view), truth)["recovered"].tolist() == [0, 0, 0]


def test_after_several_steps_ratios_remain() -> None:
    columns, values, labels = people(16)
    local = LocalTraining(optimizer="sgd", learning_rate=0.01, batch_size=4)
    view, truth = people_view(values, labels, columns, clients=2, local=local)
    found = scores(view, truth)
    assert bool((found["recovered"] >= scores(view, truth, LinearRatio())["recovered"]).all())
    assert float(found["recovered"].min()) > 0
    assert found["certified"].tolist() == [0, 0]


def test_records_are_the_nearest_possible_rows_equal_ones_together() -> None:
    records = torch.tensor([[0.1, 0.9, 0.2], [-0.1, 1.1, 0.0], [1.0, 0.0, 1.0]], dtype=torch.float64)
    rows = distinct_rows(FoundRecords(records, torch.tensor([1, 1, 0]), torch.ones(3).bool()), SMALL_TABLE)
    assert rows.values.tolist() == [[2, 0], [4, 1]]
    assert rows.classes.tolist() == [1, 0]
    assert rows.copies.tolist() == [2, 1]


def test_update_of_zeros_gives_no_row() -> None:
    empty = FoundRecords(torch.zeros(0, 3).double(), torch.zeros(0).long(), torch.zeros(0).bool())
    update = TableUpdate(
        rows=torch.zeros(4, 4).double(),
        count=3,
        columns=SMALL_TABLE,
        errors=lambda rows: torch.ones(len(rows), 3, 4).double(),
        rate=0.1,
        floor=1e-9,
        precision=1e-7,
    )
    nothing = search_table(update, lambda: None, lambda: empty)
    assert len(nothing.records) == 0


def test_ratios_on_the_grid_stand_next_to_possible_rows_of_which_none_is_certain() -> None:
    row, other = torch.tensor([[0.5, 1.0, 0.0, 1.0]]).double(), torch.tensor([[-1.0, 0.0, 1.0]]).double()
    update = TableUpdate(
        rows=0.3 * row, count=1, columns=SMALL_TABLE, errors=None, rate=None, floor=1e-9, precision=1e-7
    )
    found = FoundRecords(other, torch.tensor([1]), torch.tensor([False]))
    together = search_table(update, lambda: found, lambda: found)
    assert together.records.tolist() == [[-1, 0, 1], [0.5, 1, 0]]
    assert together.classes.tolist() == [1, -1]
    sure = FoundRecords(other, torch.tensor([1]), torch.tensor([True]))
    assert search_table(update, lambda: sure, lambda: found).records.tolist() == [[-1, 0, 1]]
