"""Boxes of the nodes of trees, and numbers that are no tree."""

import torch
from torch import Tensor

from fedleak.attacks.trees.toy import rounds_toy
from fedleak.attacks.trees.tree_boxes import TreeBoxes
from fedleak.client.tree_layout import DEFAULT_LEFT, LEFT, leaves_of, nodes_of, padding_trees
from fedleak.client.trees import TREES


def tree() -> Tensor:
    view, _ = rounds_toy()
    return view.deltas[TREES][0, 0]


def boxes_of(nodes: Tensor) -> TreeBoxes | None:
    return TreeBoxes.of(nodes, features=4)


def test_a_row_passes_the_nodes_whose_boxes_have_it() -> None:
    _, truth = rounds_toy()
    rows = truth["records"][1].double()
    boxes = boxes_of(tree())
    assert boxes is not None
    in_box = ((boxes.low <= rows[:, None]) & (rows[:, None] < boxes.high)).all(2)
    assert torch.equal(in_box, nodes_of(tree(), rows.float())[:, : len(boxes.left)])


def test_a_box_within_one_leaf_is_found_and_no_other() -> None:
    boxes = boxes_of(tree())
    assert boxes is not None
    numbers = torch.arange(len(boxes.left))
    expected = torch.where(boxes.is_leaf, numbers, -1)
    assert torch.equal(boxes.only_leaf(boxes.low, boxes.high, boxes.missing & False), expected)


def test_rows_without_a_value_take_the_side_that_the_tree_has_for_them() -> None:
    nodes = tree().clone()
    nodes[0, DEFAULT_LEFT] = 1
    rows = rounds_toy()[1]["records"][1].clone()
    rows[::2, int(nodes[0, 2])] = torch.nan
    boxes = boxes_of(nodes)
    assert boxes is not None
    assert torch.equal(boxes.leaf_of(rows.double()), leaves_of(nodes, rows))
    # Each row passes the nodes that have its values, or hold rows without them.
    is_inside = (boxes.low <= rows[:, None]) & (rows[:, None] < boxes.high) | rows[:, None].isnan() & boxes.missing
    assert torch.equal(is_inside.all(2), nodes_of(nodes, rows)[:, : len(boxes.left)])
    # In a tree that sends them to the other side, the rows of a child with a missing value are apart from the others.
    other = boxes_of(tree())
    assert other is not None
    left = boxes.left[:1]
    assert int(other.only_leaf(boxes.low[left], boxes.high[left], boxes.missing[left])) == -1


def test_numbers_that_are_no_tree_are_none() -> None:
    assert boxes_of(padding_trees(1, 7)[0]) is None
    assert boxes_of(torch.randn(7, 8)) is None
    for field, value in ((LEFT, 0.0), (LEFT, 99.0), (LEFT, -1.0), (2, 4.0), (2, 0.5), (3, torch.nan)):
        wrong = tree().clone()
        wrong[0, field] = value
        assert boxes_of(wrong) is None, (field, value)


def test_ones_in_place_of_sums_are_a_mask() -> None:
    masked = tree().clone()
    masked[:, 5] = 1
    boxes, hidden = boxes_of(tree()), boxes_of(masked)
    assert boxes is not None
    assert hidden is not None
    assert not boxes.is_masked
    assert hidden.is_masked
