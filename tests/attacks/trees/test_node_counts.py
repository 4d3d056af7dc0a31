"""Whole numbers of rows from sums and weights of XGBoost itself."""

import math
from typing import Any

import pytest
import torch

from fedleak.attacks.trees.estimates import TreeCountsEstimate
from fedleak.attacks.trees.node_counts import (
    Training,
    counts_from_hessians,
    counts_from_weights,
    probability_errors,
    whole,
)
from fedleak.attacks.trees.tree_boxes import TreeBoxes
from fedleak.attacks.trees.tree_counts import TreeCounts
from fedleak.client.tree_layout import THRESHOLD, WEIGHT
from tests.attacks.runs import run


def test_a_number_is_whole_within_an_error_that_shows_it() -> None:
    values = torch.tensor([3.001, 2.2, 5.0])
    assert whole(values, torch.tensor([0.01, 0.01, 0.2])).tolist() == [True, False, False]


TRAINING = Training(eta=0.3, reg_lambda=1.0)
LEAF = (-1, -1)
TWO_SPLITS = [(1, 2), (3, 4), LEAF, LEAF, LEAF]


def tree_of(
    counts: list[tuple[int, int]], children: list[tuple[int, int]], *, p: float = 0.5, penalty: float = 0.0
) -> TreeBoxes:
    """A tree whose nodes have so many rows and positives, as XGBoost makes it with a base score and an L1 penalty."""
    nodes = torch.zeros(len(counts), 8)
    for node, ((rows, positives), sides) in enumerate(zip(counts, children, strict=True)):
        gradient = rows * p - positives
        shrunk = math.copysign(max(abs(gradient) - penalty, 0.0), gradient)
        hessian = rows * p * (1 - p)
        weight = -shrunk / (hessian + TRAINING.reg_lambda)
        nodes[node] = torch.tensor([*sides, 0, node, weight, hessian, 0, 0])
        if sides == LEAF:
            nodes[node, [THRESHOLD, WEIGHT]] = TRAINING.eta * weight
    boxes = TreeBoxes.of(nodes, features=1)
    assert boxes is not None
    return boxes


def certified(boxes: TreeBoxes, rows: int, *, p: float = 0.5) -> list[bool]:
    """Whether the counts of a tree are certified, from its sums and from its weights alone."""
    log_odds = math.log(p / (1 - p))
    margin = torch.full((len(boxes.left),), log_odds, dtype=torch.float64)
    sums = counts_from_hessians(boxes, margin, TRAINING, size=rows, own_share=False)
    weights = counts_from_weights(boxes, log_odds, TRAINING, sizes=torch.tensor([rows]), own_share=False)
    return [bool(counts.certified.all()) for counts in (sums, weights)]


def test_two_splits_are_certified_and_fewer_are_not() -> None:
    two_splits = tree_of([(40, 22), (25, 10), (15, 12), (9, 2), (16, 8)], TWO_SPLITS)
    assert certified(two_splits, 40) == [True, True]
    # With one split, an L1 penalty gives the numbers of other rows: 10 and 10 positives instead of 9 and 11.
    counts = [(40, 20), (25, 9), (15, 11)]
    for penalty in (0.0, 1.0):
        assert certified(tree_of(counts, [(1, 2), LEAF, LEAF], penalty=penalty), 40) == [False, False]


def test_a_weight_of_zero_is_certified_for_one_half_alone() -> None:
    """An L1 penalty gives it to each node with nearly as many positives as the base score has."""
    counts = [(40, 16), (25, 8), (15, 8), (9, 2), (16, 6)]
    assert certified(tree_of(counts, TWO_SPLITS, p=0.4), 40, p=0.4) == [False, False]
    counts = [(40, 20), (25, 9), (15, 11), (9, 2), (16, 7)]
    assert certified(tree_of(counts, TWO_SPLITS), 40) == [True, True]


def test_a_root_that_is_too_light_for_a_weight_is_not_certified() -> None:
    """XGBoost gives it the weight 0, whatever its positives are."""
    boxes = tree_of([(18, 9)], [LEAF])
    assert float(boxes.threshold[0]) == 0
    assert certified(boxes, 18) == [False, False]


def test_the_error_of_a_probability_near_one_is_that_of_its_distance() -> None:
    margin = torch.tensor([3.0, 6.0, 9.0])
    single = margin.sigmoid()
    exact = margin.double().sigmoid()
    actual = (((1 - single) * single).double() / ((1 - exact) * exact) - 1).abs()
    assert bool((actual <= probability_errors(margin.double())).all())


@pytest.mark.integration
@pytest.mark.parametrize("reg_lambda", [0, 1])
@pytest.mark.parametrize("depth", [3, 6])
def test_trees_of_xgboost_are_exact(depth: int, reg_lambda: int) -> None:
    pytest.importorskip("xgboost")
    from bench.tree_counts import VARIANTS, tables, view_of

    table = tables(None)["breast cancer"]
    params: dict[str, Any] = {"eta": 0.3, "max_depth": depth, "lambda": reg_lambda, "subsample": 1.0}
    view, truth = view_of(table, params, {})
    for variant, arguments in VARIANTS.items():
        metrics = run(TreeCounts(**arguments), view, TreeCountsEstimate).score(view, truth).metrics
        assert float(metrics["false-certified-nodes"]) == 0
        if reg_lambda or variant == "sums, size":
            assert float(metrics["exact-nodes"]) == 1, variant
    drawn, truth = view_of(table, {**params, "subsample": 0.8}, {})
    for arguments in VARIANTS.values():
        metrics = run(TreeCounts(**arguments), drawn, TreeCountsEstimate).score(drawn, truth).metrics
        assert float(metrics["certified-nodes"]) == 0
