"""Rows of a table with few possible ones: exact and certain after one step, never without the update."""

import dataclasses
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction import (
    ColumnPrior,
    LinearInversion,
    MajorityRow,
    TabLeak,
)
from fedleak.attacks.reconstruction.estimates import ReconstructionEstimate
from fedleak.attacks.reconstruction.linear_layer import LinearEstimate
from fedleak.attacks.reconstruction.peeled_rows import RowChanges
from fedleak.attacks.reconstruction.possible_rows import _first_copies, search_possible
from fedleak.attacks.reconstruction.table_rows import row_accuracy
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier
from fedleak.core.errors import ViewError
from fedleak.core.record_hash import RECORD_ORIGIN, RECORD_STEP, record_hashes
from fedleak.core.seeding import generator_for
from fedleak.core.table_columns import COLUMNS, TableColumns
from fedleak.core.view import RoundView
from tests.attacks.runs import of_noise, of_others, run

KINDS = torch.tensor(
    [[0, 0, 0.4, -1.5, 0, 9], *[[1, 1, 1, 0, 0, 1]] * 2, *[[2, 1, 1, 0, 0, 1]] * 5], dtype=torch.float64
)
KNOWN = TableColumns.of(KINDS)
SHAPE = (1, 1, len(KINDS))
EMBEDDED = ClassifierOptions(name="mlp", hidden=60, embedding=2, categories=[(1, 2), (3, 5)])
ONE_STEP = LocalTraining(optimizer="sgd", learning_rate=0.1)


def drawn_rows(count: int, *, seed: int = 0) -> Tensor:
    draws = generator_for(seed, "rows")
    values = torch.stack([torch.randint(size, (count,), generator=draws) for size in KNOWN.sizes], dim=1)
    return KNOWN.encode(values).float().reshape(-1, *SHAPE)


def server_view(
    clients: int,
    records: int,
    *,
    local: LocalTraining = ONE_STEP,
    network: ClassifierOptions = ClassifierOptions(name="mlp", hidden=60),  # noqa: B008 - frozen
    seed: int = 0,
    repeated: int = 0,
) -> tuple[RoundView, dict[str, Tensor]]:
    """What the server sees, and the truth; the first rows, `repeated` of them, are there a second time."""
    rows = drawn_rows(clients * records, seed=seed)
    labels = torch.randint(3, (len(rows),), generator=generator_for(seed, "labels"))
    rows[repeated : 2 * repeated], labels[repeated : 2 * repeated] = rows[:repeated], labels[:repeated]
    learner = ImageClassifierAlgorithm(network=network, image_shape=SHAPE, num_classes=3, local=local)
    made = build_classifier(network, image_shape=SHAPE, classes=3, generator=generator_for(0, "model"))
    model = {name: value.detach() for name, value in made.named_parameters()}
    own = torch.arange(len(rows)).reshape(clients, records)
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(clients),
        example_counts=torch.full((clients,), records),
        deltas=learner.simulate_examples(model, rows, labels, own, generator=generator_for(0, "order")),
        model=model,
        auxiliary={"images": drawn_rows(12, seed=9), COLUMNS: KINDS},
        algorithm=learner,
    )
    grid = KNOWN.step.reshape(SHAPE), KNOWN.origin.reshape(SHAPE)
    salts = torch.arange(clients * 16, dtype=torch.uint8).reshape(-1, 16)
    truth = {
        "record_hash": torch.stack([record_hashes(rows[o], salt, grid) for o, salt in zip(own, salts, strict=True)]),
        "record_salt": salts,
        "record_labels": labels[own],
        "records": rows[own],
        "record_copies": torch.ones(own.shape, dtype=torch.int64),
        RECORD_STEP: grid[0].expand(clients, *SHAPE),
        RECORD_ORIGIN: grid[1].expand(clients, *SHAPE),
    }
    return view, truth


def scores(view: RoundView, truth: dict[str, Tensor]) -> dict[str, Tensor]:
    return dict(run(LinearInversion(), view, LinearEstimate).score(view, truth).metrics)


@pytest.mark.parametrize("records", [1, 5, 40])
def test_rows_are_exact_and_certain_also_of_more_records_than_inputs(records: int) -> None:
    view, truth = server_view(2, records)
    found = scores(view, truth)
    for name in ("recovered", "certified", "label-accuracy", "numbers-within-step", "categories"):
        assert found[name].tolist() == [1, 1], name
    assert found["false-certified"].tolist() == [0, 0]
    assert torch.equal(found["unique-recovered"], found["unique"])


def test_rows_behind_an_embedding_of_categories_are_exact_after_one_step() -> None:
    view, truth = server_view(2, 12, network=EMBEDDED)
    found = scores(view, truth)
    for name in ("recovered", "certified", "label-accuracy"):
        assert found[name].tolist() == [1, 1], name
    assert found["false-certified"].tolist() == [0, 0]
    assert scores(of_others(view), truth)["recovered"].max() < 0.5
    assert scores(of_noise(view), truth)["certified"].tolist() == [0, 0]


@pytest.mark.parametrize(
    "change",
    [
        {"auxiliary": {}},
        {"algorithm": None},
        {"local": LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=5)},
    ],
    ids=["no columns", "no algorithm", "several steps"],
)
def test_rows_behind_an_embedding_are_refused_without_what_they_need(change: dict[str, Any]) -> None:
    local = change.pop("local", ONE_STEP)
    view, _ = server_view(2, 12, network=EMBEDDED, local=local)
    with pytest.raises(ViewError, match="embedding of categories"):
        run(LinearInversion(), dataclasses.replace(view, **change), LinearEstimate)


@pytest.mark.parametrize("times", [2, 3, 5], ids=["x 2", "x 3", "epochs or steps x rows"])
def test_rows_are_certain_once_if_a_multiple_of_their_number_is_reported(times: int) -> None:
    """The update of 2 N rows at half the rate is that of N rows."""
    view, truth = server_view(2, 12)
    found = scores(dataclasses.replace(view, example_counts=times * view.example_counts), truth)
    assert found["recovered"].tolist() == [1, 1]
    assert found["false-certified"].tolist() == [0, 0]
    assert found["certified"].tolist() == [1, 1]


def test_rows_that_a_client_has_twice_are_certain_twice_if_others_are_there_once() -> None:
    view, truth = server_view(1, 12, repeated=4)
    found = scores(view, truth)
    assert found["certified"].tolist() == found["recovered"].tolist() == [1]
    assert found["false-certified"].tolist() == [0]


def test_where_each_row_is_there_twice_the_second_copy_is_not_certain() -> None:
    """As a client with half as many rows that reports twice their number sends the same update."""
    view, truth = server_view(1, 12, repeated=6)
    found = scores(view, truth)
    assert found["recovered"].tolist() == [1]
    assert found["certified"].tolist() == [0.5]
    assert found["false-certified"].tolist() == [0]


@pytest.mark.parametrize("reported", [24, 8])
def test_sum_of_clients_is_solved_too(reported: int) -> None:
    """Also if the message has the number of rows of its first client only."""
    view, truth = server_view(3, 8)
    total = {name: value.sum(0, keepdim=True) for name, value in view.deltas.items()}
    summed = dataclasses.replace(
        view, deltas=total, pseudonyms=torch.zeros(1, dtype=torch.int64), example_counts=torch.tensor([reported])
    )
    estimate = run(LinearInversion(), summed, LinearEstimate)
    assert bool(estimate.certified.all())
    found, true = (KNOWN.decode(rows.reshape(-1, *SHAPE)).tolist() for rows in (estimate.records, truth["records"]))
    assert Counter(map(tuple, found)) == Counter(map(tuple, true))


def test_order_of_records_and_clients_does_not_matter() -> None:
    view, truth = server_view(3, 10)
    order = torch.tensor([2, 0, 1])
    first, second = (
        scores(view, truth),
        scores(view.select(order), {name: value[order] for name, value in truth.items()}),
    )
    assert torch.equal(first["recovered"][order], second["recovered"])


def test_another_clients_update_recovers_as_chance_does() -> None:
    view, truth = server_view(3, 10)
    prior = run(ColumnPrior(), view, ReconstructionEstimate).score(view, truth).metrics["recovered"]
    assert scores(of_others(view), truth)["recovered"].mean() <= prior.mean() + 0.15


def test_noise_has_no_certificate() -> None:
    view, truth = server_view(3, 10)
    assert scores(of_noise(view), truth)["certified"].tolist() == [0, 0, 0]


def test_small_change_of_the_update_takes_the_certificate_away() -> None:
    view, truth = server_view(2, 40)
    weight = view.deltas["body.1.weight"]
    draws = generator_for(0, "change")
    changed = {
        **view.deltas,
        "body.1.weight": weight + 1e-3 * weight.std() * torch.randn(weight.shape, generator=draws),
    }
    assert scores(dataclasses.replace(view, deltas=changed), truth)["certified"].tolist() == [0, 0]


def test_several_steps_certify_nothing_false() -> None:
    local = LocalTraining(optimizer="sgd", learning_rate=0.01, batch_size=5)
    for records in (4, 30):
        view, truth = server_view(3, records, local=local)
        found = scores(view, truth)
        assert found["false-certified"].tolist() == [0, 0, 0]
        assert found["recovered"].mean() > 0.3


def test_columns_that_are_not_the_layers_are_refused() -> None:
    view, _ = server_view(2, 4)
    wrong = dataclasses.replace(view, auxiliary={**view.auxiliary, COLUMNS: KINDS[:-1]})
    with pytest.raises(ViewError, match="columns"):
        run(LinearInversion(), wrong, LinearEstimate)
    with pytest.raises(ViewError, match="columns"):
        TableColumns.of(KINDS[:, :3])


def test_update_of_zeros_gives_no_row() -> None:
    nothing = search_possible(
        torch.zeros(4, 9).double(),
        3,
        RowChanges(KNOWN, lambda rows: torch.ones(len(rows), 3, 4).double()),
        floor=1e-6,
        precision=1e-7,
        one_step=True,
    )
    assert not bool(nothing.certain.any())


def test_columns_are_scored_after_matching_row_by_row() -> None:
    true, guess = torch.tensor([[3, 1, 2], [7, 0, 4]]), torch.tensor([[9, 0, 4], [4, 1, 0]])
    found = row_accuracy([guess, guess[:0]], [true, true], KNOWN)
    assert found["numbers-within-step"].tolist() == [0.5, 0]
    assert found["categories"].tolist() == [0.75, 0]


def test_baselines_give_possible_rows() -> None:
    view, truth = server_view(2, 30)
    majority, prior = (run(attack, view, ReconstructionEstimate) for attack in (MajorityRow(), ColumnPrior()))
    assert len(torch.unique(majority.records.flatten(0, 1), dim=0)) == 1
    assert 0 < prior.score(view, truth).metrics["categories"].mean() < 1


@pytest.mark.integration
@pytest.mark.parametrize("local", [ONE_STEP, LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=2)])
def test_tableak_is_better_than_the_prior_and_at_chance_on_anothers_update(local: LocalTraining) -> None:
    view, truth = server_view(2, 4, local=local)
    attack = TabLeak(max_iter=150, members=4)
    own, other = (
        run(attack, seen, ReconstructionEstimate).score(view, truth).metrics["categories"].mean()
        for seen in (view, of_others(view))
    )
    assert own > 0.7
    assert other < own - 0.1


def test_a_row_that_is_found_in_two_classes_is_certain_once() -> None:
    """Least squares takes rows in any order, another one between both classes."""
    assert _first_copies(torch.tensor([7, 4, 7]), torch.tensor([2, 1, 1])).tolist() == [True, False, True, False]
