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
