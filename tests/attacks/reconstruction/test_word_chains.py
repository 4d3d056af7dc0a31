"""The search for sentences from sums of states, on states that are no network's."""

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.word_chains import word_chains
from fedleak.attacks.reconstruction.word_sums import WordSums


class HalvedStates:
    """States of two numbers: half of the state before, and the word."""

    numbers = 1

    def empty(self) -> Tensor:
        return torch.zeros(1, 2, dtype=torch.float64)

    def after(self, states: Tensor, words: Tensor) -> Tensor:
        vectors = words.double()[:, None] * torch.tensor([1.0, 0.3], dtype=torch.float64)
        return states[:, None] / 2 + vectors

    def links(self, before: Tensor, words: Tensor, after: Tensor) -> list[tuple[int, int, Tensor]]:
        return []


def test_a_search_without_frequent_words_ends_where_no_prefix_has_a_words_state() -> None:
    sums = torch.zeros(4, 2, dtype=torch.float64)
    sums[3] = torch.tensor([7.0, 7.0])  # no state of these words
    counts = torch.tensor([0, 0, 0, 1])
    search = word_chains(HalvedStates(), torch.tensor([1]), WordSums(counts, sums, 1e-6), sentences=1, most_states=1000)
    search.run()
    assert not search.complete
    assert search.forest.sentences() == []


def test_a_word_follows_the_prefix_whose_state_is_its_sum() -> None:
    sums = torch.zeros(4, 2, dtype=torch.float64)
    sums[3] = torch.tensor([1.0, 0.3])  # the state after word 1
    counts = torch.tensor([0, 0, 0, 1])
    search = word_chains(HalvedStates(), torch.tensor([1]), WordSums(counts, sums, 1e-6), sentences=1, most_states=1000)
    search.run()
    assert search.complete
    assert search.forest.sentences() == [[1, 3]]
