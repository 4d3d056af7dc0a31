"""Rows from trees are better than similar rows, and certificates are true."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from fedleak.attacks.trees import OwnRows, TreeRows
from fedleak.attacks.trees.estimates import rows_of
from fedleak.attacks.trees.row_estimates import TreeRowsEstimate
from fedleak.attacks.trees.toy import Truth, algorithm, rounds_toy
from fedleak.client.tree_layout import HESSIAN, LEFT, THRESHOLD, WEIGHT, padding_trees
from fedleak.client.trees import BASE_SCORE, TREES
from fedleak.core.errors import ViewError
from fedleak.core.history import History
from tests.attacks.runs import run

pytestmark = pytest.mark.integration

ACCURACY = "reconstruction-accuracy"


def scores(attack: Any, view: History) -> dict[str, torch.Tensor]:
    _, truth = rounds_toy()
    return dict(run(attack, view, TreeRowsEstimate).score(view, truth).metrics)


def test_it_is_better_than_similar_rows_and_certifies_no_wrong_one() -> None:
    view, _ = rounds_toy()
    own, inferred = scores(OwnRows(), view), scores(TreeRows(), view)
    assert bool((inferred[ACCURACY] > own[ACCURACY]).all())
    assert float(inferred[ACCURACY].mean() - own[ACCURACY].mean()) > 0.05
    assert inferred["certified-rows"].tolist() == [1, 1, 1]
    assert inferred["false-certified-rows"].tolist() == [0, 0, 0]


def test_a_second_tree_narrows_certified_boxes() -> None:
    view, _ = rounds_toy()
    limits = []
    for certifies in (False, True):
        estimate = run(TreeRows(certifies_second=certifies), view, TreeRowsEstimate)
        ends = estimate.low.isfinite().sum(2) + estimate.high.isfinite().sum(2)
        limits.append(int(ends[estimate.certified].sum()))
    assert limits[1] > limits[0]


def test_masked_sums_are_enough_for_the_first_tree() -> None:
    view, _ = rounds_toy()
    inferred = scores(TreeRows(use_hessians=False), view)
    assert inferred["certified-rows"].tolist() == [1, 1, 1]
    assert inferred["false-certified-rows"].tolist() == [0, 0, 0]
    assert float(inferred[ACCURACY].mean()) > float(scores(OwnRows(), view)[ACCURACY].mean()) + 0.05


def changed(change: Callable[[torch.Tensor], None]) -> History:
    view, _ = rounds_toy()
    trees = view.deltas[TREES].clone()
    change(trees)
    return dataclasses.replace(view, deltas={**view.deltas, TREES: trees})


def add_noise(trees: torch.Tensor) -> None:
    noise = torch.randn(trees.shape[:3], generator=torch.Generator().manual_seed(0))
    is_leaf = trees[..., LEFT] < 0
    trees[..., WEIGHT] *= 1 + 0.01 * noise
    trees[..., HESSIAN] *= 1 + 0.01 * noise.roll(1, 2)
    trees[..., THRESHOLD] *= 1 + 0.01 * noise * is_leaf


def test_noise_and_wrong_declarations_are_not_certified() -> None:
    view, _ = rounds_toy()
    wrong = dataclasses.replace(algorithm(), reg_lambda=2.0)
    for broken in (changed(add_noise), dataclasses.replace(view, algorithm=wrong)):
        assert scores(TreeRows(), broken)["certified-rows"].tolist() == [0, 0, 0]


def test_trees_of_others_certify_nothing_of_a_client() -> None:
    view, _ = rounds_toy()
    sender = torch.arange(view.victims).reshape(-1, 3).roll(1, 1).flatten()
    exchanged = dataclasses.replace(view, deltas={name: value[sender] for name, value in view.deltas.items()})
    assert scores(TreeRows(), exchanged)["certified-rows"].tolist() == [0, 0, 0]


def test_a_drawing_of_rows_is_refused() -> None:
    view, _ = rounds_toy()
    drawing = dataclasses.replace(view, algorithm=dataclasses.replace(algorithm(), subsample=0.5))
    with pytest.raises(ViewError, match="drawing"):
        run(TreeRows(), drawing, TreeRowsEstimate)


def test_numbers_that_are_no_trees_give_no_rows() -> None:
    def garble(trees: torch.Tensor) -> None:
        trees.copy_(torch.randn(trees.shape, generator=torch.Generator().manual_seed(0)))

    assert scores(TreeRows(), changed(garble))[ACCURACY].tolist() == [0, 0, 0]


def two_rounds(tables: list[tuple[torch.Tensor, torch.Tensor]], in_forest: list[int]) -> tuple[History, Truth]:
    """What the server sees of clients whose trees XGBoost grows; the forest gets the first trees of some of them."""
    view, _ = rounds_toy()
    clients, settings = len(tables), algorithm()
    models = {0: {TREES: padding_trees(clients, settings.largest_tree), BASE_SCORE: torch.tensor([0.5])}}
    first = [settings.grow(models[0], rows, labels.float()) for rows, labels in tables]
    forest = models[0][TREES].clone()
    forest[: len(in_forest)] = torch.cat([first[client][TREES] for client in in_forest])
    models[1] = {TREES: forest, BASE_SCORE: torch.stack([sent[BASE_SCORE] for sent in first]).mean(0)}
    messages = first + [settings.grow(models[1], rows, labels.float()) for rows, labels in tables]
    history = dataclasses.replace(
        view,
        pseudonyms=torch.arange(clients).repeat(2),
        example_counts=torch.tensor([len(labels) for _, labels in tables]).repeat(2),
        deltas={name: torch.stack([sent[name] for sent in messages]) for name in (TREES, BASE_SCORE)},
        model=models[0],
        sent_in=torch.arange(2).repeat_interleave(clients),
        round_models=models,
    )
    hashes = [torch.ones(len(labels), 1) for _, labels in tables]
    truth = {
        "records": pad_sequence([rows for rows, _ in tables], batch_first=True).repeat(2, 1, 1),
        "record_labels": pad_sequence([labels for _, labels in tables], batch_first=True).repeat(2, 1),
        "record_hash": pad_sequence(hashes, batch_first=True).repeat(2, 1, 1),
        "clients": torch.arange(clients).repeat(2),
    }
    return history, truth


def tables_of_toy() -> list[tuple[torch.Tensor, torch.Tensor]]:
    _, truth = rounds_toy()
    return [rows_of(truth, client) for client in range(3)]


@pytest.mark.parametrize("kind", ["all", "equal clients", "missing values", "without the first tree"])
def test_certificates_are_true_on_trees_of_xgboost(kind: str) -> None:
    pytest.importorskip("xgboost")
    tables, in_forest = tables_of_toy(), [0, 1, 2]
    if kind == "equal clients":
        tables[1] = tables[0]
    if kind == "missing values":
        for number, (rows, _) in enumerate(tables):
            rows[torch.rand(rows.shape, generator=torch.Generator().manual_seed(number)) < 0.2] = torch.nan
    if kind == "without the first tree":
        in_forest = [2]
    view, truth = two_rounds(tables, in_forest)
    estimate = run(TreeRows(), view, TreeRowsEstimate)
    metrics = estimate.score(view, truth).metrics
    assert metrics["certified-rows"].tolist() == [1, 1, 1]
    assert metrics["false-certified-rows"].tolist() == [0, 0, 0]


def test_a_first_tree_on_a_forest_is_not_certified() -> None:
    history, truth = rounds_toy()
    is_first = history.pseudonyms == 0
    view = history.select(is_first.nonzero().flatten())
    truth = {name: value[is_first] for name, value in truth.items()}
    for value, certified in ((None, 1), (0.0, 0)):
        model = {TREES: history.model[TREES].clone(), BASE_SCORE: view.deltas[BASE_SCORE][0]}
        if value is not None:
            # A forest of a leaf that adds nothing: the counts would be right, but only because of that.
            model[TREES][0, 0] = torch.tensor([-1.0, -1, 0, value, value, 1, 0, 0])
        on_forest = dataclasses.replace(view, round_models={**view.round_models, 0: model})
        estimate = run(TreeRows(certifies_second=False), on_forest, TreeRowsEstimate)
        assert estimate.score(on_forest, truth).metrics["certified-rows"].tolist() == [certified]


def test_masked_sums_are_not_read_for_certificates() -> None:
    """Sums of the second tree that contradict its weights do not matter."""

    def change_later(trees: torch.Tensor) -> None:
        trees[3:, ..., HESSIAN] *= 3

    assert scores(TreeRows(), changed(change_later))["certified-rows"].tolist() == [0, 0, 0]
    assert scores(TreeRows(use_hessians=False), changed(change_later))["certified-rows"].tolist() == [1, 1, 1]
