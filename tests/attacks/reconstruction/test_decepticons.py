"""Decepticons reads words at their places from bins, and nothing from other updates or an honest model."""

import dataclasses
from typing import Any

import pytest
import torch

from fedleak.attacks.reconstruction.decepticons import Decepticons, Readings, fill
from fedleak.attacks.reconstruction.estimates import TextsEstimate
from fedleak.core.errors import ViewError
from tests.attacks.runs import of_noise, of_others, run
from tests.published_text_toys import imprinted_texts, metric, short_texts
from tests.transformer_toys import algorithm, texts, view_of

pytestmark = pytest.mark.integration


def test_words_are_read_at_their_places_but_for_the_last() -> None:
    view, truth = imprinted_texts()
    estimate = run(Decepticons(), view, TextsEstimate)
    estimate.check(view)
    assert min(metric(estimate, view, truth, "words-in-place")) >= 0.7  # of 5/6
    assert max(metric(estimate, view, truth, "recovered")) == 0


def test_with_last_words_texts_are_exact() -> None:
    view, truth = imprinted_texts()
    estimate = run(Decepticons(last_words=True), view, TextsEstimate)
    assert min(metric(estimate, view, truth, "recovered")) >= 2 / 3


@pytest.mark.parametrize("decouple", [of_others, of_noise])
def test_an_update_of_somebody_else_shows_nothing(decouple: Any) -> None:
    view, truth = imprinted_texts()
    estimate = run(Decepticons(), decouple(view), TextsEstimate)
    assert max(metric(estimate, view, truth, "words-in-place")) <= 0.06


def test_an_honest_network_shows_nothing() -> None:
    view, truth = short_texts()
    estimate = run(Decepticons(), view, TextsEstimate)
    assert max(metric(estimate, view, truth, "words-in-place")) == 0


def test_mixtures_fill_free_places_before_the_last_word() -> None:
    """By hand: the second text has no word at place 1, and its mark is that of the best mixture."""
    readings = Readings(
        words=torch.tensor([7, 8, 9]),
        places=torch.tensor([1, 1, 5]),
        cosines=torch.tensor([0.5, 0.9, 0.8]),
        first_words=torch.tensor([3, 4, 4]),
    )
    found = [{0: 3, 1: 5, 2: 6}, {0: 4, 2: 6}]
    fill(found, readings, torch.zeros(3, dtype=torch.bool))
    assert found == [{0: 3, 1: 5, 2: 6}, {0: 4, 1: 8, 2: 6}]


def test_other_networks_and_updates_are_refused() -> None:
    view, _ = imprinted_texts()
    with pytest.raises(ViewError, match="feed-forward"):
        run(Decepticons(), dataclasses.replace(view, deltas={}), TextsEstimate)
    with pytest.raises(ViewError, match="GPT-2"):
        run(Decepticons(), view_of(algorithm(), texts(1, 1)), TextsEstimate)
