"""The way of rows through trees, by hand and against a walk node by node."""

import pytest
import torch

from fedleak.client.tree_layout import (
    DEFAULT_LEFT,
    FEATURE,
    LEFT,
    PADDING,
    RIGHT,
    THRESHOLD,
    leaves_of,
    margins,
    nodes_of,
    padding_trees,
    tree_count,
)


def random_tree(generator: torch.Generator, *, splits: int, features: int, nodes: int) -> torch.Tensor:
    """A tree with random shape, thresholds, and leaves, padded to ``nodes``."""
    tree = padding_trees(1, nodes)[0]
    leaves = [0]
    used = 1
    for _ in range(splits):
        parent = leaves.pop(int(torch.randint(len(leaves), (), generator=generator)))
        tree[parent, LEFT] = used
        tree[parent, RIGHT] = used + 1
        tree[parent, FEATURE] = torch.randint(features, (), generator=generator)
        tree[parent, THRESHOLD] = torch.randn((), generator=generator)
        tree[parent, DEFAULT_LEFT] = torch.randint(2, (), generator=generator)
        leaves += [used, used + 1]
        used += 2
    for leaf in leaves:
        tree[leaf, LEFT] = -1
        tree[leaf, RIGHT] = -1
        tree[leaf, THRESHOLD] = torch.randn((), generator=generator)
    return tree


def walk(tree: torch.Tensor, row: torch.Tensor) -> list[int]:
    """Nodes on the way of one row."""
    way = [0]
    while tree[way[-1], LEFT] >= 0:
        fields = tree[way[-1]]
        value = row[int(fields[FEATURE])]
        goes_left = bool(fields[DEFAULT_LEFT]) if value.isnan() else bool(value < fields[THRESHOLD])
        way.append(int(fields[LEFT] if goes_left else fields[RIGHT]))
    return way


@pytest.fixture
def forest() -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    trees = [random_tree(generator, splits=splits, features=4, nodes=31) for splits in (0, 1, 5, 12)]
    return torch.stack([*trees, padding_trees(1, 31)[0]])


@pytest.fixture
def rows() -> torch.Tensor:
    rows = torch.randn(40, 4, generator=torch.Generator().manual_seed(4))
    rows[::7, 1] = torch.nan
    return rows


def test_every_row_takes_the_way_of_a_walk_node_by_node(forest: torch.Tensor, rows: torch.Tensor) -> None:
    for tree in forest[:-1]:
        leaves = leaves_of(tree, rows)
        passed = nodes_of(tree, rows)
        for number, row in enumerate(rows):
            way = walk(tree, row)
            assert int(leaves[number]) == way[-1]
            assert passed[number].nonzero().flatten().tolist() == sorted(way)


def test_margins_sum_the_values_of_leaves_and_padding_adds_nothing(forest: torch.Tensor, rows: torch.Tensor) -> None:
    expected = torch.zeros(len(rows))
    for tree in forest[:-1]:
        expected += torch.stack([tree[walk(tree, row)[-1], THRESHOLD] for row in rows])
    assert torch.allclose(margins(forest, rows), expected)
    assert tree_count(forest) == 4


def test_a_value_at_the_threshold_goes_right() -> None:
    tree = random_tree(torch.Generator().manual_seed(0), splits=1, features=1, nodes=3)
    assert leaves_of(tree, tree[:1, THRESHOLD, None]).tolist() == [int(tree[0, RIGHT])]


def test_padding_has_no_nodes() -> None:
    empty = padding_trees(2, 5)
    assert bool((empty[:, :, LEFT] == PADDING).all())
    assert nodes_of(empty[0], torch.zeros(3, 2)).sum() == 0
    assert margins(empty, torch.zeros(3, 2)).tolist() == [0, 0, 0]


def test_a_tree_with_a_circle_ends() -> None:
    tree = random_tree(torch.Generator().manual_seed(0), splits=2, features=1, nodes=5)
    parent = int((tree[1:, LEFT] >= 0).nonzero()[0]) + 1
    tree[parent, LEFT] = 0
    tree[parent, RIGHT] = 0
    with pytest.raises(ValueError, match="before"):
        leaves_of(tree, torch.tensor([[-100.0], [100.0]]))
