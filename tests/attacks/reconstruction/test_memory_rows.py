"""Texts are read from the rows of a memory adapter, in one and several steps, and not from another client's update."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction.memory_rows import MemoryRows, MemoryRowsEstimate
from fedleak.core.errors import ViewError
from fedleak.core.view import RoundView
from tests.attacks.runs import of_noise, of_others, run
from tests.memory_toys import WORDS, fine_tuned, memory_model
from tests.text_toys import plain
from tests.transformer_toys import algorithm, texts, view_of

pytestmark = pytest.mark.integration
TEXTS = 6


def attacked(view: RoundView) -> MemoryRowsEstimate:
    estimate = run(MemoryRows(words=WORDS), view, MemoryRowsEstimate)
    estimate.check(view)
    assert not bool(estimate.certified.any())
    return estimate


def memory_view(*, honest: bool = False, **local: Any) -> tuple[Tensor, RoundView]:
    tokens = texts(2, TEXTS, WORDS, seed=3)
    return tokens, view_of(fine_tuned(**local), tokens, None if honest else memory_model(2 * TEXTS))


def share(found: MemoryRowsEstimate, tokens: Tensor, *, read: bool = False) -> float:
    """Share of the texts that are found, or of those without their last words."""
    end = -1 if read else None
    hits = [
        sum(text[:end] in [one[:end] for one in plain(own[:count])] for text in true)
        for own, count, true in zip(found.records, found.count.tolist(), tokens.tolist(), strict=True)
    ]
    return sum(hits) / tokens[..., 0].numel()


def test_texts_of_one_step_are_exact_with_their_last_words() -> None:
    tokens, view = memory_view()
    assert share(attacked(view), tokens) >= 0.8


def test_several_steps_do_not_mix() -> None:
    tokens, view = memory_view(epochs=5, batch_size=3)
    assert share(attacked(view), tokens, read=True) >= 0.6


@pytest.mark.parametrize("decouple", [of_others, of_noise])
def test_an_update_of_somebody_else_shows_nothing(decouple: Any) -> None:
    tokens, view = memory_view()
    assert share(attacked(decouple(view)), tokens, read=True) == 0


def test_an_honest_adapter_shows_no_text() -> None:
    tokens, view = memory_view(honest=True)
    assert share(attacked(view), tokens, read=True) == 0


def test_read_words_are_scored_without_the_last() -> None:
    """By hand: the first text is right but for its last word, the second is wrong."""
    records = torch.tensor([[[1, 2, 3], [4, 5, 6]]])
    estimate = MemoryRowsEstimate(
        records=records,
        labels=torch.full((1, 2), -1),
        certified=torch.zeros(1, 2, dtype=torch.bool),
        count=torch.tensor([2]),
    )
    _, view = memory_view()
    truth = {
        "records": torch.tensor([[[1, 2, 9], [4, 9, 6]]]),
        "record_hash": torch.ones(1, 2, 32, dtype=torch.uint8),
        "record_salt": torch.zeros(1, 16, dtype=torch.uint8),
    }
    assert estimate.score(view, truth).metrics["read-recovered"].tolist() == [0.5]


def test_a_view_without_updates_is_refused() -> None:
    own = algorithm()
    view = view_of(own, texts(1, 1))
    with pytest.raises(ViewError, match="first adapter"):
        run(MemoryRows(), dataclasses.replace(view, deltas={}), MemoryRowsEstimate)


def test_adapters_that_read_single_words_keep_no_texts_and_are_refused() -> None:
    with pytest.raises(ViewError, match="single words"):
        run(MemoryRows(words=WORDS), view_of(algorithm(), texts(2, 1, WORDS)), MemoryRowsEstimate)
