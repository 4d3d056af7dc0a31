"""TimberStrike as published: first-tree probing, assignment to leaves, and what is filled in."""

import dataclasses

import pytest
import torch

from fedleak.attacks.trees import TimberStrike
from fedleak.attacks.trees.estimates import rows_of, true_counts
from fedleak.attacks.trees.row_estimates import TreeRowsEstimate
from fedleak.attacks.trees.timberstrike import first_tree_counts
from fedleak.attacks.trees.toy import algorithm, rounds_toy
from fedleak.attacks.trees.tree_boxes import TreeBoxes
from fedleak.client.tree_layout import HESSIAN, LEFT
from fedleak.client.trees import BASE_SCORE, TREES
from fedleak.core.errors import ViewError
from tests.attacks.runs import run

pytestmark = pytest.mark.integration


def test_the_first_tree_has_the_rows_of_each_class() -> None:
    view, truth = rounds_toy()
    for client in range(3):
        tree = view.deltas[TREES][client, 0]
        boxes = TreeBoxes.of(tree, features=4)
        assert boxes is not None
        counts = first_tree_counts(boxes, float(view.deltas[BASE_SCORE][client]), algorithm())
        rows, labels = rows_of(truth, client)
        _, true_rows, true_positives = true_counts(tree[None], rows, labels)
        leaves = boxes.is_leaf
        assert torch.equal(counts[0][leaves], true_rows[0, : len(leaves)][leaves])
        assert torch.equal(counts[1][leaves], true_positives[0, : len(leaves)][leaves])


def test_every_row_is_in_its_box_and_of_its_class() -> None:
    view, truth = rounds_toy()
    estimate = run(TimberStrike(most_trees=3), view, TreeRowsEstimate)
    for client in range(3):
        rows, labels = rows_of(truth, client)
        inferred = estimate.client(client)
        assert len(inferred.rows) == len(rows)
        assert int(inferred.labels.sum()) == int(labels.sum())
        numbers = inferred.rows[:, :3]
        assert bool((numbers >= inferred.low[:, :3].clamp(min=0)).all())
        assert bool((numbers <= inferred.high[:, :3]).all())


def test_later_trees_and_predictions_add_fields() -> None:
    view, truth = rounds_toy()
    accuracy = {}
    for key, attack in (
        ("whole", TimberStrike(most_trees=3)),
        ("unfilled", TimberStrike(most_trees=3, fills=False)),
        ("first tree", TimberStrike(most_trees=1)),
    ):
        metrics = run(attack, view, TreeRowsEstimate).score(view, truth).metrics
        accuracy[key] = float(metrics["reconstruction-accuracy"].mean())
    assert accuracy["whole"] > accuracy["unfilled"] + 0.05
    assert accuracy["whole"] > accuracy["first tree"] + 0.02


def test_masked_sums_are_refused() -> None:
    view, _ = rounds_toy()
    trees = view.deltas[TREES].clone()
    trees[..., HESSIAN] = (trees[..., LEFT] > -2).float()
    masked = dataclasses.replace(view, deltas={**view.deltas, TREES: trees})
    with pytest.raises(ViewError, match="masked"):
        run(TimberStrike(most_trees=1), masked, TreeRowsEstimate)
