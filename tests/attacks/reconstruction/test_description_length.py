"""Description lengths are those of Laplace's rule on the other clients' records, and sum to a code."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction.description_length import description_bits
from fedleak.attacks.reconstruction.estimates import reconstruction
from fedleak.core.record_hash import RECORD_ORIGIN, RECORD_STEP
from tests.reconstruction_toys import truth_of, view_of


def lengths(*records: Tensor, **truth: Tensor) -> list[Tensor]:
    found = description_bits(records, truth)
    assert found is not None
    return found


def test_words_and_the_end_of_a_sentence_are_counted_among_the_others() -> None:
    own, other = torch.tensor([[2, 3, 0]]), torch.tensor([[2, 2, 3], [2, 0, 0]])
    # The others have word 2 three times, 3 once and two ends: six symbols, of 0 to 3.
    expected = -math.log2(4 / 10) - math.log2(2 / 10) - math.log2(3 / 10)
    assert float(lengths(own, other)[0]) == pytest.approx(expected)


def test_padding_costs_nothing() -> None:
    short, other = torch.tensor([[2, 3]]), torch.tensor([[2, 2, 3]])
    padded = torch.tensor([[2, 3, 0, 0, 0]])
    assert float(lengths(short, other)[0]) == float(lengths(padded, other)[0])


def test_each_column_of_a_table_has_its_own_values() -> None:
    step, origin = torch.tensor([[1.0, 0.5]] * 2).double(), torch.zeros(2, 2).double()
    own, other = torch.tensor([[1.0, 40.0]]), torch.tensor([[0.0, 40.5], [1.0, 41.0], [1.0, 40.0]])
    expected = -math.log2(3 / 5) - math.log2(2 / 6)  # of two values, and of three
    assert float(lengths(own, other, **{RECORD_STEP: step, RECORD_ORIGIN: origin})[0]) == pytest.approx(expected)


def test_an_image_is_described_by_differences_of_neighbours() -> None:
    flat = torch.full((1, 1, 4, 4), 7 / 255)
    steps = torch.arange(16).reshape(1, 1, 4, 4) / 255
    same, other = lengths(flat, flat), lengths(flat, steps)
    assert float(same[0]) < 0.5 * float(other[0])


def test_the_lengths_of_all_records_are_those_of_a_code() -> None:
    other = torch.tensor([[1, 2, 2], [3, 0, 0]])
    # All sentences of up to two words, of which 0 ends one: a code, whose Kraft sum is below 1.
    sentences = [list(words) for size in range(3) for words in itertools.product([1, 2, 3], repeat=size)]
    kraft = sum(2 ** -float(lengths(torch.tensor([words + [0] * (3 - len(words))]), other)[0]) for words in sentences)
    assert 0.5 < kraft <= 1


def test_nothing_is_described_without_other_clients_or_with_too_many_values() -> None:
    assert description_bits([torch.tensor([[1, 2]]), torch.zeros(0, 2).long()], {}) is None
    assert description_bits([torch.tensor([[1]]), torch.tensor([[2**40]])], {}) is None


def test_only_exact_records_add_bits_less_those_that_name_them() -> None:
    true = [torch.tensor([[1, 2, 3], [2, 3, 4]]), torch.tensor([[4, 4, 4], [1, 1, 1]])]
    whole = lengths(*true)
    truth = truth_of(true, [torch.zeros(2).long()] * 2, keep=True)
    guesses = [torch.tensor([[2, 3, 4], [9, 9, 9], [1, 2, 4]]), torch.tensor([[4, 4, 4], [4, 4, 4], [1, 2, 2]])]
    found = reconstruction(guesses).score(view_of([2, 2]), truth).metrics
    expected = [float(own[place]) - math.log2(4) for own, place in zip(whole, (1, 0), strict=True)]
    assert found["bits"].tolist() == pytest.approx(expected)
    assert (found["bits"] + found["bits-left"]).tolist() == pytest.approx([float(own.sum()) for own in whole])
