"""Counts of nodes are exact where the arithmetic holds, and certified nowhere else."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fedleak.attacks.trees import TreeCounts
from fedleak.attacks.trees.estimates import TreeCountsEstimate
from fedleak.attacks.trees.toy import Truth, algorithm, rounds_toy, toy
from fedleak.client.tree_layout import HESSIAN, LEFT, THRESHOLD, WEIGHT
from fedleak.client.trees import BASE_SCORE, TREES
from fedleak.core.errors import ViewError
from fedleak.core.view import RoundView
from tests.attacks.runs import run

VARIANTS: dict[str, dict[str, Any]] = {
    "sums": {},
    "masked": {"use_hessians": False},
    "unknown size": {"knows_size": False},
    "masked, unknown size": {"use_hessians": False, "knows_size": False},
}


def values(view: RoundView, truth: Truth, **arguments: Any) -> dict[str, list[float]]:
    estimate = run(TreeCounts(**arguments), view, TreeCountsEstimate)
    return {name: value.tolist() for name, value in estimate.score(view, truth).metrics.items()}


def with_trees(view: RoundView, trees: Tensor) -> RoundView:
    return dataclasses.replace(view, deltas={**view.deltas, TREES: trees})


def declaring(view: RoundView, **settings: Any) -> RoundView:
    return dataclasses.replace(view, algorithm=dataclasses.replace(algorithm(), **settings))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_node_is_exact(variant: str) -> None:
    view, truth = toy()
    scores = values(view, truth, **VARIANTS[variant])
    assert scores["exact-nodes"] == [1, 1, 1]
    assert scores["false-certified-nodes"] == [0, 0, 0]
    if "unknown" not in variant:
        assert scores["certified-nodes"] == [1, 1, 1]


def test_a_mask_is_noticed_by_itself() -> None:
    view, truth = toy()
    trees = view.deltas[TREES].clone()
    trees[..., HESSIAN] = (trees[..., LEFT] > -2).float()
    assert values(with_trees(view, trees), truth)["certified-nodes"] == [1, 1, 1]


def test_without_lambda_the_mask_hides_the_size() -> None:
    """Every multiple of the number of rows gives the same weights."""
    view, truth = toy(reg_lambda=0.0)
    declared = declaring(view, reg_lambda=0.0)
    assert values(declared, truth)["certified-nodes"] == [1, 1, 1]
    assert values(declared, truth, **VARIANTS["masked, unknown size"])["certified-nodes"] == [0, 0, 0]


def noisy(view: RoundView) -> RoundView:
    trees = view.deltas[TREES].clone()
    noise = torch.randn(trees.shape[:3], generator=torch.Generator().manual_seed(0))
    trees[..., WEIGHT] *= 1 + 1e-3 * noise
    is_leaf = trees[..., LEFT] < 0
    trees[..., THRESHOLD] *= 1 + 1e-3 * noise * is_leaf
    trees[..., HESSIAN] *= 1 + 1e-3 * noise.flip(0)
    return with_trees(view, trees)


def rounded(view: RoundView) -> RoundView:
    trees = view.deltas[TREES].clone()
    numbers = [THRESHOLD, WEIGHT, HESSIAN]
    trees[..., numbers] = trees[..., numbers].bfloat16().float()
    return with_trees(view, trees)


def with_base_score(view: RoundView) -> RoundView:
    return dataclasses.replace(view, deltas={**view.deltas, BASE_SCORE: view.deltas[BASE_SCORE] * 1.01})


BROKEN: dict[str, Callable[[RoundView], RoundView]] = {
    "noise": noisy,
    "rounding": rounded,
    "another base score": with_base_score,
    "another lambda": lambda view: declaring(view, reg_lambda=2.0),
    "another learning rate": lambda view: declaring(view, eta=0.1),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", BROKEN)
def test_what_does_not_fit_is_not_certified(kind: str, variant: str) -> None:
    view, truth = toy()
    scores = values(BROKEN[kind](view), truth, **VARIANTS[variant])
    assert scores["certified-nodes"] == [0, 0, 0]


def test_another_clients_tree_is_not_certified_for_a_size_that_is_known() -> None:
    view, truth = toy()
    others = {name: value.roll(1, 0) for name, value in view.deltas.items()}
    exchanged = dataclasses.replace(view, deltas=others)
    for variant in ("sums", "masked"):
        assert values(exchanged, truth, **VARIANTS[variant])["certified-nodes"] == [0, 0, 0]


def test_a_drawing_of_rows_is_refused_where_it_is_declared() -> None:
    view, _ = toy()
    with pytest.raises(ViewError, match="drawing"):
        run(TreeCounts(), declaring(view, subsample=0.8), TreeCountsEstimate)


def test_another_objective_is_refused() -> None:
    view, _ = toy()
    with pytest.raises(ViewError, match="binary:logistic"):
        run(TreeCounts(), declaring(view, objective="reg:squarederror"), TreeCountsEstimate)


def test_later_trees_are_counted_where_rows_have_one_margin() -> None:
    """Beside a forest whose only tree is a leaf, all rows have one margin; beside the true one, none of the toy's."""
    history, truth = rounds_toy()
    of_clients = {name: value[:3] for name, value in truth.items()}
    later = history.in_round(1)
    with pytest.raises(ViewError, match="one margin"):
        run(TreeCounts(), later, TreeCountsEstimate)
    # The first trees beside a leaf of the value 0 that the server's forest has: the margins are those of its score.
    first = history.in_round(0)
    forest = first.model[TREES].clone()
    forest[0, 0] = torch.tensor([-1.0, -1, 0, 0, 0, 1, 0, 0])
    scores = []
    for client in range(3):
        model = {TREES: forest, BASE_SCORE: first.deltas[BASE_SCORE][client]}
        view = dataclasses.replace(first, model=model).select(torch.tensor([client]))
        scores.append(values(view, {name: value[client : client + 1] for name, value in of_clients.items()}))
    assert [score["exact-nodes"] for score in scores] == [[1], [1], [1]]
    assert [score["certified-nodes"] for score in scores] == [[1], [1], [1]]
