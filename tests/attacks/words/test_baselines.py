"""Popular words, by hand."""

import pytest
import torch

from attacks.scoring import best_decisions
from attacks.words.baselines import word_frequencies
from tests.attacks.runs import plain_view


def test_the_frequency_of_a_word_is_its_share_of_texts() -> None:
    view = plain_view(1, auxiliary={"prior_features": torch.tensor([[2, 2, 0], [2, 3, 0], [1, 0, 0]])})
    found = word_frequencies(view, 5)
    assert found is not None
    assert found[1:].tolist() == pytest.approx([1.5 / 4, 2.5 / 4, 1.5 / 4, 0.5 / 4])


def test_as_many_words_as_give_the_largest_expected_f1() -> None:
    decisions, expected = best_decisions(torch.tensor([[0.1, 0.9, 0.8, 0.05]], dtype=torch.float64))
    assert decisions.tolist() == [[False, True, True, False]]
    assert expected.tolist() == pytest.approx([2 * 1.7 / (2 + 1.85)])
