"""The toy's trees are those of XGBoost's exact method."""

import dataclasses

import pytest
import torch

from fedleak.attacks.trees.toy import algorithm, rounds_toy
from fedleak.attacks.trees.tree_trainer import grow_tree
from fedleak.client.tree_layout import FEATURE, HESSIAN, LEFT, RIGHT, THRESHOLD, WEIGHT, leaves_of, margins


def test_the_trees_lower_the_loss() -> None:
    _, truth = rounds_toy()
    rows, labels = truth["records"][2], truth["record_labels"][2]
    forest = torch.zeros(0, algorithm().largest_tree, 8)
    losses = []
    for _ in range(3):
        forest = torch.cat([forest, grow_tree(rows, labels, forest, 0.5, algorithm())[None]])
        probability = margins(forest, rows).sigmoid().where(labels > 0, 1 - margins(forest, rows).sigmoid())
        losses.append(float(-probability.log().mean()))
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.5


@pytest.mark.integration
def test_a_tree_equals_that_of_xgboost() -> None:
    pytest.importorskip("xgboost")
    from bench.tree_counts import first_tree

    _, truth = rounds_toy()
    rows, labels = truth["records"][2], truth["record_labels"][2]
    settings = dataclasses.replace(algorithm(), depth=3)
    params = {
        "eta": settings.eta,
        "max_depth": settings.depth,
        "lambda": settings.reg_lambda,
        "min_child_weight": settings.min_child_weight,
        "tree_method": "exact",
    }
    (theirs,), base_score = first_tree((rows, labels), params)
    forest = torch.zeros(0, settings.largest_tree, 8)
    ours = grow_tree(rows, labels, forest, float(base_score), settings)[: len(theirs)]
    assert torch.equal(ours[:, [LEFT, RIGHT, FEATURE]], theirs[:, [LEFT, RIGHT, FEATURE]])
    assert torch.equal(leaves_of(ours, rows), leaves_of(theirs, rows))
    splits = ours[:, LEFT] >= 0
    numbers = [THRESHOLD, HESSIAN]
    assert torch.allclose(ours[:, numbers], theirs[:, numbers], rtol=1e-5)
    # This method stores the base weights of leaves without the learning rate.
    assert torch.allclose(ours[splits, WEIGHT], theirs[splits, WEIGHT], rtol=1e-5, atol=1e-6)
