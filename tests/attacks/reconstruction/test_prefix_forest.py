"""Words are taken from those that are left, sentences reach what continues, and what does not fit changes nothing."""

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.prefix_forest import GONE, PrefixForest

WORDS = torch.tensor([10, 11, 12, 13])


def states(before: Tensor, words: Tensor) -> Tensor:
    """``(P, W, 1)`` words so far as the digits of a number."""
    return 100 * before[:, None] + words.double()[None, :, None]


def forest(*counts: int) -> PrefixForest:
    return PrefixForest(
        states,
        torch.zeros(1, 1, dtype=torch.float64),
        WORDS,
        torch.arange(4),
        torch.tensor(counts),
        torch.zeros(4, 1).double(),
    )


def test_sentences_are_what_is_reached_more_often_than_left() -> None:
    one = forest(0, 3, 2, 1)
    assert one.attach(0, [1, 2])
    assert one.attach(0, [1])
    assert one.attach(2, [1, 3])
    assert sorted(one.sentences()) == [[10, 11], [10, 11, 12], [12, 11, 13]]
    assert one.left.tolist() == [0, 0, 1, 0]
    assert one.begun == 3
    assert one.sums.flatten().tolist() == [0, -(10 + 10 + 12), -1011, -1211]


def test_prefix_that_is_left_more_often_is_reached_again() -> None:
    one = forest(0, 2, 2, 1)
    assert one.attach(0, [1, 2])
    first = one.children[0, 1]
    assert one.attach(first, [3])
    assert sorted(one.sentences()) == [[10, 11, 12], [10, 11, 13]]
    assert one.left.tolist() == [0, 0, 1, 0]


def test_open_prefix_is_continued_and_not_doubled() -> None:
    one = forest(0, 1, 1, 0)
    assert one.attach(0, [1])
    assert one.attach(0, [1, 2])
    assert one.sentences() == [[10, 11, 12]]


def test_words_that_are_not_left_change_nothing() -> None:
    one = forest(0, 1, 1, 1)
    assert one.attach(0, [1, 2])
    assert not one.attach(one.children[0, 1], [3])  # would need word 1 once more
    assert not one.attach(0, [2])
    assert one.left.tolist() == [0, 0, 0, 1]
    assert one.sentences() == [[10, 11, 12]]


def test_root_becomes_the_prefix_that_it_is() -> None:
    one = forest(0, 1, 1, 1)
    one.add_root(torch.tensor([1011.0]).double(), [2, 3])
    root = one.roots()[0]
    assert one.sentences() == []
    assert one.prefix(len(one.parents) - 1) is None
    assert not one.identify(root, len(one.parents) - 1, [])  # no prefix continues itself
    assert one.identify(root, 0, [1])
    assert one.parents[root] == GONE
    assert one.sentences() == [[10, 11, 12, 13]]
    assert one.left.tolist() == [0, 0, 0, 0]


def test_copy_can_be_changed_on_its_own() -> None:
    one = forest(0, 1, 0, 0)
    other = one.copy()
    assert other.attach(0, [1])
    assert one.sentences() == []
    assert one.left.tolist() == [0, 1, 0, 0]
    assert one.attach(2, [1])
    assert (one.sentences(), other.sentences()) == ([[12, 11]], [[10, 11]])
