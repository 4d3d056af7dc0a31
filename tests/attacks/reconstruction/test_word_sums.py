"""Counts of next words are exact, and the sums of the states before them agree with the states themselves."""

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction.word_layers import word_layers
from fedleak.attacks.reconstruction.word_sums import WordSums, word_sums
from fedleak.client.text import TextAlgorithm
from fedleak.core.view import RoundView
from tests.attacks.runs import of_noise
from tests.text_toys import CLIENTS, KINDS, seen

VOCABULARY = 300


def sums_of(view: RoundView, victim: int) -> WordSums:
    learner = view.require(TextAlgorithm)
    layers = word_layers(learner)
    change, last = (layers.layer_gradients(deltas)[2] for deltas in (view.deltas, view.model))
    return word_sums(change[victim], last, learner.learning_rate)


def truth(view: RoundView, victim: int) -> tuple[Tensor, Tensor]:
    """Counts and sums, one word after another."""
    layers = word_layers(view.require(TextAlgorithm))
    counts, sums = torch.zeros(VOCABULARY, dtype=torch.int64), torch.zeros(VOCABULARY, 24, dtype=torch.float64)
    for sentence in CLIENTS[victim]:
        for place in range(1, len(sentence)):
            counts[sentence[place]] += 1
            sums[sentence[place]] += layers.last_inputs(view.model, torch.tensor([sentence[:place]]))[0, :-1]
    return counts, sums


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("victim", [0, 1])
def test_counts_are_exact_and_sums_have_the_estimated_error(kind: str, victim: int) -> None:
    view = seen(kind, vocabulary=VOCABULARY, embedding=24)
    found, (counts, sums) = sums_of(view, victim), truth(view, victim)
    assert torch.equal(found.counts, counts)
    error = (found.sums - sums).norm(dim=1)[counts > 0]
    assert float(error.max()) < 12 * found.error
    assert found.error < 5e-3 * float(sums[counts == 1].norm(dim=1).median())


def test_noise_has_a_large_error_and_a_small_vocabulary_none_that_is_known() -> None:
    noise = sums_of(of_noise(seen("lstm", vocabulary=VOCABULARY)), 0)
    assert noise.error > 0.02
    few = sums_of(seen("lstm", [[[1, 2, 3], [4, 5]]], vocabulary=20), 0)
    assert few.error == float("inf")
    assert not few.counts.any()
