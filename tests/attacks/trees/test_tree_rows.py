"""Rows from trees are better than similar rows, and certificates are true."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fedleak.attacks.trees import OwnRows, TreeRows
from fedleak.attacks.trees.row_estimates import TreeRowsEstimate
from fedleak.attacks.trees.toy import algorithm, rounds_toy
from fedleak.client.tree_layout import HESSIAN, LEFT, THRESHOLD, WEIGHT
from fedleak.client.trees import TREES
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
