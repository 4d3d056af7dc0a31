"""Defences of trees: what they change of a message, and what they leave."""

import pytest
import torch
from torch import Tensor

from fedleak.client.tree_layout import GAIN, HESSIAN, PADDING, THRESHOLD, WEIGHT
from fedleak.client.trees import BASE_SCORE, TREES
from fedleak.core.errors import InputError
from fedleak.defenses.base import Defense, Update
from fedleak.defenses.compression import Clip
from fedleak.defenses.counts_withheld import CountsWithheld
from fedleak.defenses.trees import MaskedHessians, NoisyLeaves, RoundedTrees, TreeDefense, check_of_trees

SPLIT = [1.0, 2, 3, 41.37, 0.0123456, 23.456, 7.891, 1]
LOW = [-1.0, -1, 0, -0.287654, -0.287654, 11.234, 0, 0]
HIGH = [-1.0, -1, 0, 0.787654, 0.787654, 12.222, 0, 0]
NO_NODE = [float(PADDING), 0, 0, 0, 0, 0, 0, 0]
STRUCTURE = [0, 1, 2, 7]


def message(clients: int = 1, base_score: float = 0.35) -> Update:
    tree = torch.tensor([SPLIT, LOW, HIGH, NO_NODE])
    return Update({TREES: tree.repeat(clients, 2, 1, 1), BASE_SCORE: torch.full((clients, 1), base_score)})


def sent(defense: Defense, update: Update) -> tuple[Tensor, Tensor]:
    deltas = defense.protect(update, lambda client: torch.Generator().manual_seed(client)).deltas
    return deltas[TREES], deltas[BASE_SCORE]


@pytest.mark.parametrize("defense", [MaskedHessians(), RoundedTrees(digits=2), NoisyLeaves(clip=0.5, scale=0.1)])
def test_the_order_of_nodes_and_the_message_itself_stay(defense: TreeDefense) -> None:
    update = message(clients=2)
    before = update.deltas[TREES].clone()
    trees, _ = sent(defense, update)
    assert torch.equal(update.deltas[TREES], before)
    assert trees.shape == before.shape
    assert torch.equal(trees[..., STRUCTURE], before[..., STRUCTURE])
    # A line that is no node stays one.
    assert torch.equal(trees[..., 3, :], before[..., 3, :])


def test_masked_hessians_are_ones() -> None:
    trees, base_scores = sent(MaskedHessians(), message())
    assert trees[0, 0, :, HESSIAN].tolist() == [1, 1, 1, 0]
    assert trees[0, 0, 1, WEIGHT] == pytest.approx(-0.287654)
    assert float(base_scores) == pytest.approx(0.35)


@pytest.mark.parametrize(
    ("base_score", "expected"), [(0.3456, 0.35), (0.9964, 0.9964), (0.99649, 0.9965), (3.456, 3.5)]
)
def test_rounded_trees_have_so_many_digits(base_score: float, expected: float) -> None:
    trees, base_scores = sent(RoundedTrees(digits=2), message(base_score=base_score))
    fields = [THRESHOLD, WEIGHT, HESSIAN, GAIN]
    assert trees[0, 0, 0, fields].tolist() == pytest.approx([41, 0.012, 23, 7.9])
    # A probability near 1 is rounded by its distance from 1, and stays one.
    assert float(base_scores) == pytest.approx(expected, abs=1e-6)
    exact, _ = sent(RoundedTrees(digits=9), message())
    assert torch.allclose(exact, message().deltas[TREES], rtol=1e-7)
    with pytest.raises(InputError, match="up to 9"):
        RoundedTrees(digits=10)


def test_noisy_leaves_are_clipped_and_send_no_other_sum() -> None:
    trees, _ = sent(NoisyLeaves(clip=0.5, scale=0.0), message())
    assert trees[0, 0, :, THRESHOLD].tolist() == pytest.approx([41.37, -0.287654, 0.5, 0])
    assert trees[0, 0, :, WEIGHT].tolist() == pytest.approx([0, -0.287654, 0.5, 0])
    assert trees[0, 0, :, HESSIAN].tolist() == [1, 1, 1, 0]
    assert not bool(trees[..., GAIN].any())


def test_the_noise_of_leaves_is_that_of_laplace() -> None:
    trees, _ = sent(NoisyLeaves(clip=0.5, scale=0.2), message(clients=4000))
    noise = (trees[:, :, 1, THRESHOLD] + 0.287654).flatten().double()
    # 8,000 draws: the mean of the absolute values is the scale, with a deviation of it over the root of their number.
    assert float(noise.mean()) == pytest.approx(0, abs=0.015)
    assert float(noise.abs().mean()) == pytest.approx(0.2, abs=0.01)
    assert float((noise**2).mean()) == pytest.approx(2 * 0.2**2, rel=0.1)
    # Weight and value of a leaf are one number, and must not be noised twice.
    assert torch.equal(trees[..., 1, THRESHOLD], trees[..., 1, WEIGHT])


def test_defences_of_averages_are_refused_and_others_are_not() -> None:
    check_of_trees([MaskedHessians(), CountsWithheld(examples=3)])
    with pytest.raises(InputError, match="Clip, which changes numbers that a server averages"):
        check_of_trees([MaskedHessians(), Clip(norm=1.0)])
    with pytest.raises(InputError, match="clients that send trees, for MaskedHessians; found weight"):
        MaskedHessians().protect(Update({"weight": torch.zeros(1, 2)}), lambda _: torch.Generator())
