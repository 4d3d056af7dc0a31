"""Rows of standardised tables: found after one step of a known algorithm, and certain only if they are the client's."""

import dataclasses

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction import LinearInversion
from fedleak.attacks.reconstruction.linear_layer import LinearEstimate
from fedleak.attacks.reconstruction.record_supports import _certified
from fedleak.client.binary_classifier import BinaryClassifierAlgorithm
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier
from fedleak.core.errors import ViewError
from fedleak.core.record_hash import RECORD_ORIGIN, RECORD_STEP, record_hashes
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from tests.attacks.runs import of_noise, of_others, run, with_deltas

COLUMNS, STEP = 16, 0.01
ONE_STEP = LocalTraining(optimizer="sgd", learning_rate=0.1)


def table(count: int, *, seed: int = 0) -> Tensor:
    """``(count, 1, 1, 16)`` rows on a grid of hundredths, with a constant column and three one-hot columns."""
    draws = generator_for(seed, "table")
    rows = torch.randn(count, 1, generator=draws) + torch.randn(count, COLUMNS, generator=draws)
    rows[:, 0] = 0
    rows[:, 1:4] = torch.nn.functional.one_hot(torch.randint(3, (count,), generator=draws), 3) * 2.0 - 1
    return ((rows.double() / STEP).round() * STEP).float().reshape(count, 1, 1, COLUMNS)


def table_view(
    rows: Tensor, labels: Tensor, *, clients: int = 2, classes: int = 2, local: LocalTraining = ONE_STEP
) -> tuple[RoundView, dict[str, Tensor]]:
    """What the server sees of clients that share the rows equally, and the truth."""
    network, shape = ClassifierOptions(name="mlp", hidden=256), (1, 1, COLUMNS)
    learner = ImageClassifierAlgorithm(network=network, image_shape=shape, num_classes=classes, local=local)
    made = build_classifier(network, image_shape=shape, classes=classes, generator=generator_for(0, "model"))
    model = {name: value.detach() for name, value in made.named_parameters()}
    own = torch.arange(len(rows)).reshape(clients, -1)
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(clients),
        example_counts=torch.full((clients,), own.shape[1]),
        deltas=learner.simulate_examples(model, rows, labels, own, generator=generator_for(0, "order")),
        model=model,
        auxiliary={"images": table(8, seed=9)},
        algorithm=learner,
    )
    grid = torch.full(shape, STEP, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    salts = torch.arange(clients * 16, dtype=torch.uint8).reshape(-1, 16)
    truth = {
        "record_hash": torch.stack([record_hashes(rows[o], salt, grid) for o, salt in zip(own, salts, strict=True)]),
        "record_salt": salts,
        "record_labels": labels[own],
        RECORD_STEP: grid[0].expand(clients, *shape),
        RECORD_ORIGIN: grid[1].expand(clients, *shape),
    }
    return view, truth


def drawn(count: int, classes: int = 2, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    return table(count, seed=seed), torch.randint(classes, (count,), generator=generator_for(seed, "labels"))


def scores(view: RoundView, truth: dict[str, Tensor]) -> dict[str, Tensor]:
    return dict(run(LinearInversion(), view, LinearEstimate).score(view, truth).metrics)


@pytest.mark.parametrize("classes", [2, 5])
def test_rows_with_constant_and_one_hot_columns_are_all_certain(classes: int) -> None:
    view, truth = table_view(*drawn(20, classes), classes=classes)
    found = scores(view, truth)
    assert found["certified"].tolist() == found["recovered"].tolist() == [1, 1]
    assert found["false-certified"].tolist() == [0, 0]


def test_rows_of_a_network_with_one_logit_are_all_certain() -> None:
    rows, labels = drawn(20)
    network, shape = ClassifierOptions(name="mlp", hidden=256), (1, 1, COLUMNS)
    learner = BinaryClassifierAlgorithm(network=network, image_shape=shape, positive=(1,), local=ONE_STEP)
    view, truth = table_view(rows, labels)
    made = build_classifier(network, image_shape=shape, classes=1, generator=generator_for(0, "model"))
    model = {name: value.detach() for name, value in made.named_parameters()}
    own = torch.arange(len(rows)).reshape(2, -1)
    deltas = learner.simulate_examples(model, rows, labels, own, generator=generator_for(0, "order"))
    found = scores(dataclasses.replace(view, deltas=deltas, model=model, algorithm=learner), truth)
    assert found["certified"].tolist() == found["recovered"].tolist() == [1, 1]
    assert found["false-certified"].tolist() == [0, 0]


def test_a_row_that_a_client_has_twice_is_found_twice() -> None:
    rows, labels = drawn(20)
    rows[1], labels[1] = rows[0], labels[0]
    found = scores(*table_view(rows, labels))
    assert found["recovered"].tolist() == [1, 1]
    assert found["false-certified"].tolist() == [0, 0]


@pytest.mark.parametrize("others", [0, 8])
def test_the_mean_of_two_rows_that_excite_the_same_neurons_is_not_certain(others: int) -> None:
    """Of two classes, their changes of the bias are in proportion, so that an update shows twice the mean."""
    rows, labels = drawn(2 + others)
    rows[1], labels[1] = rows[0], labels[0]
    rows[0, ..., -1] -= STEP
    rows[1, ..., -1] += STEP
    estimate = run(LinearInversion(), table_view(rows, labels, clients=1)[0], LinearEstimate)
    assert int(estimate.count) == 2 + others
    assert int(estimate.certified.sum()) == others


@pytest.mark.integration
def test_pairs_of_rows_that_excite_the_same_neurons_are_not_certain() -> None:
    """Their update is that of their means, each twice: so is that of the means if twice their number is reported."""
    rows, labels = drawn(20)
    rows[1::2], labels[1::2] = rows[::2], labels[::2]
    rows[::2, ..., -1] -= STEP
    rows[1::2, ..., -1] += STEP
    assert scores(*table_view(rows, labels, clients=5))["false-certified"].tolist() == [0] * 5


@pytest.mark.parametrize("times", [2, 3])
def test_rows_of_which_a_multiple_is_reported_are_found_and_not_certain(times: int) -> None:
    view, truth = table_view(*drawn(20))
    found = scores(dataclasses.replace(view, example_counts=times * view.example_counts), truth)
    assert found["recovered"].tolist() == [1, 1]
    assert found["certified"].tolist() == found["false-certified"].tolist() == [0, 0]


@pytest.mark.integration
def test_equal_rows_of_different_classes_give_nothing_false() -> None:
    rows, labels = drawn(20)
    rows[1], labels[0], labels[1] = rows[0], 0, 1
    assert scores(*table_view(rows, labels))["false-certified"].tolist() == [0, 0]


def test_after_clipping_rows_are_still_certain() -> None:
    view, truth = table_view(*drawn(20))
    assert scores(with_deltas(view, lambda delta: delta * 0.01), truth)["certified"].tolist() == [1, 1]


def test_the_update_of_another_client_certifies_that_clients_rows() -> None:
    view, truth = table_view(*drawn(20))
    found = scores(of_others(view), truth)
    assert found["recovered"].tolist() == [0, 0]
    assert found["false-certified"].tolist() == [10, 10]


@pytest.mark.integration
def test_in_noise_with_a_foreign_model_or_a_wrong_count_nothing_is_certain() -> None:
    view, _ = table_view(*drawn(20))
    draws = generator_for(0, "slight noise")
    slight = with_deltas(view, lambda delta: delta + 0.03 * delta.std() * torch.randn(delta.shape, generator=draws))
    model = {name: value + 0.05 * torch.randn(value.shape, generator=draws) for name, value in view.model.items()}
    wrong = [of_noise(view), slight, dataclasses.replace(view, model=model)]
    for other in (*wrong, dataclasses.replace(view, example_counts=view.example_counts + 1)):
        assert int(run(LinearInversion(failures=3), other, LinearEstimate).certified.sum()) == 0


@pytest.mark.parametrize(("count", "epochs"), [(40, 1), (20, 2)])
def test_more_records_than_columns_and_several_steps_are_refused(count: int, epochs: int) -> None:
    local = LocalTraining(optimizer="sgd", learning_rate=0.1, epochs=epochs)
    view, _ = table_view(*drawn(count), local=local)
    with pytest.raises(ViewError, match="tables"):
        run(LinearInversion(failures=3), view, LinearEstimate)


def test_records_that_change_the_update_alike_are_refused_and_end_nothing() -> None:
    """Their step has no least squares, as of two rows that differ only where a network of two classes does not look."""
    records = torch.tensor([[0.5, 1.0, 1.0], [-0.5, 2.0, 1.0]], dtype=torch.float64)
    alike = torch.ones(2, 1, 5, dtype=torch.float64)
    rows = -0.1 * alike[:, 0].T @ records
    assert _certified(rows, records, lambda _: alike, count=2, slack=1e-6, accuracy=1e-3) is None
