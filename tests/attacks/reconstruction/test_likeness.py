"""Records are matched so that the total error is least."""

import pytest
import torch

from fedleak.attacks.reconstruction.likeness import identified, nearest, rouge


def test_originals_get_the_assignment_of_least_error() -> None:
    originals = torch.tensor([[0.0], [1.0], [2.0]])
    for guesses, expected in (([1.9, 0.1], [0.1, 0.0, 1.9]), ([], [0.0] * 3), ([5.0, 0.2, 1.1, 2.2], [0.2, 1.1, 2.2])):
        found = nearest(torch.tensor(guesses).reshape(-1, 1), originals)
        assert found.flatten().tolist() == pytest.approx(expected)


def test_a_record_that_another_client_holds_too_is_not_identified() -> None:
    originals, labels = (
        [torch.tensor([[1.0]]), torch.tensor([[1.0]]), torch.tensor([[3.0]])],
        [torch.zeros(1).long()] * 3,
    )
    found = identified(originals, originals, labels, (None, None))
    assert found["identified"].tolist() == [0, 0, 1]
    assert found["identified-by-chance"].tolist() == pytest.approx([1 / 3] * 3)


def test_a_client_without_a_guess_has_no_rouge() -> None:
    found = rouge([torch.zeros(0, 3).long()], [torch.tensor([[1, 2, 0]])])
    assert found["rouge1"].tolist() == [0.0]


def test_the_longest_common_subsequence_ignores_what_stands_between() -> None:
    sentence = torch.tensor([[1, 2, 3, 4, 5]])
    in_order, reversed_words = torch.tensor([[1, 9, 3, 5]]), sentence.flip(1)
    found = rouge([in_order, reversed_words, sentence], [sentence] * 3)
    # Of 4 and 5 words, 1, 3 and 5 are in order; of the reversed sentence, one word is.
    assert found["rouge-l"].tolist() == pytest.approx([2 * 3 / 9, 1 / 5, 1])
    assert found["rouge1"].tolist() == pytest.approx([2 * 3 / 9, 1, 1])
    # 1 and 3; the word in the middle; all.
    assert found["words-in-place"].tolist() == pytest.approx([2 / 5, 1 / 5, 1])


def test_a_client_without_sentences_has_no_rouge_and_one_half_guessed_has_half() -> None:
    found = rouge(
        [torch.tensor([[1, 2]]), torch.tensor([[1, 2]])],
        [torch.zeros(0, 2).long(), torch.tensor([[1, 2], [3, 4]])],
    )
    assert found["rouge-l"].isnan().tolist() == [True, False]
    assert float(found["rouge-l"][1]) == 0.5
