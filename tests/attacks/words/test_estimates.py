"""Scores of words by hand."""

import pytest
import torch

from fedleak.attacks.words.estimates import WordCountEstimate, WordSetEstimate, dense
from tests.attacks.runs import plain_view

VIEW = plain_view(2)
TRUTH = {"words": torch.tensor([[0, 1, 3], [1, 0, 0]]), "next_words": torch.tensor([[0, 2, 1], [1, 0, 0]])}


def test_words_of_a_client_by_number() -> None:
    assert dense(TRUTH["words"], TRUTH["next_words"], 5).tolist() == [[0, 2, 0, 1, 0], [0, 1, 0, 0, 0]]


def test_scores_of_a_set() -> None:
    decisions = torch.tensor([[False, True, True, True, False], [False, False, True, False, False]])
    found = WordSetEstimate(
        scores=decisions.double(), decisions=decisions, expected=torch.full((2,), torch.nan, dtype=torch.float64)
    )
    metrics = found.score(VIEW, {"words": torch.tensor([[4, 1, 3], [1, 0, 0]])}).metrics
    assert metrics["f1"].tolist() == pytest.approx([2 / 3, 0])
    # Only the first client has words 3 and 4, of which 3 is found; the second has no word of its own.
    assert metrics["rare-words"][0] == 1 / 2
    assert metrics["rare-words"][1].isnan()
    assert "predicted-f1" not in metrics
    # Words 3 (of score 1) and 4 (0, as no word) next to word 2, which the first client does not have and which has 1.
    assert metrics["rare-precision"][0] == pytest.approx((1 / 2 + 2 / 3) / 2)
    # Three words of score 1 for three places, of which the client has two.
    assert metrics["r-precision"].tolist() == pytest.approx([2 / 3, 0])


def test_scores_of_counts() -> None:
    counts = torch.tensor([[0.0, 1, 4, 1, 0], [0, 1, 0, 0, 0]], dtype=torch.float64)
    metrics = WordCountEstimate(counts=counts, deviation=torch.zeros(2, 5)).score(VIEW, TRUTH).metrics
    assert metrics["exact-words"].tolist() == pytest.approx([1 / 3, 1])
    assert metrics["within-one"].tolist() == pytest.approx([2 / 3, 1])
    assert metrics["word-recall"].tolist() == pytest.approx([2 / 3, 1])
    assert metrics["predicted-exact-words"].tolist() == [1, 1]
