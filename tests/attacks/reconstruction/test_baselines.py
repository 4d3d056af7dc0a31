"""The mean image is blurred, exact for nobody, and at chance."""

import dataclasses

import pytest
import torch

from fedleak.attacks.re_identification.simulated import FEATURES
from fedleak.attacks.reconstruction import MeanRecord, RandomSentences
from fedleak.core.errors import ViewError
from tests.reconstruction_toys import LABELS, TRUE, images, truth_of, view_of
from tests.text_toys import plain, seen


def test_the_mean_image_recovers_nothing() -> None:
    auxiliary = {"images": images(300, 7), "labels": torch.arange(300) % 2}
    view = view_of([3, 2], auxiliary=auxiliary)
    found = MeanRecord()(view, generator=torch.Generator()).score(view, truth_of(TRUE, LABELS, keep=True)).metrics
    assert found["recovered"].tolist() == [0, 0]
    assert float(found["identified"].mean()) < 0.5
    assert 8 < float(found["psnr"].mean()) < 13


def test_as_many_sentences_as_reported_from_the_adversarys_texts() -> None:
    texts = torch.tensor([[40, 41, 0], [42, 43, 44]])
    view = dataclasses.replace(seen("lstm"), auxiliary={FEATURES: texts})
    found = RandomSentences()(view, generator=torch.Generator().manual_seed(0))
    assert found.count.tolist() == view.example_counts.tolist()  # type: ignore[attr-defined]
    for records, count in zip(found.records, found.count, strict=True):  # type: ignore[attr-defined]
        assert all(sentence in plain(texts) for sentence in plain(records[:count]))
    with pytest.raises(ViewError, match="texts"):
        RandomSentences()(dataclasses.replace(view, auxiliary={FEATURES: texts.float()}), generator=torch.Generator())
