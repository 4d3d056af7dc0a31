"""Sentences of others are no reconstruction."""

import dataclasses

import pytest
import torch

from attacks.re_identification.simulated import FEATURES
from attacks.reconstruction import RandomSentences
from protocol.errors import ViewError
from tests.text_toys import plain, seen


def test_as_many_sentences_as_reported_from_the_adversarys_texts() -> None:
    texts = torch.tensor([[40, 41, 0], [42, 43, 44]])
    view = dataclasses.replace(seen("lstm"), auxiliary={FEATURES: texts})
    found = RandomSentences()(view, generator=torch.Generator().manual_seed(0))
    assert found.count.tolist() == view.example_counts.tolist()  # type: ignore[attr-defined]
    for records, count in zip(found.records, found.count, strict=True):  # type: ignore[attr-defined]
        assert all(sentence in plain(texts) for sentence in plain(records[:count]))
    with pytest.raises(ViewError, match="texts as word numbers"):
        RandomSentences()(dataclasses.replace(view, auxiliary={FEATURES: texts.float()}), generator=torch.Generator())
