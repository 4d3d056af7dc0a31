"""The mean image is blurred, exact for nobody, and at chance."""

import torch

from attacks.reconstruction import MeanRecord
from tests.reconstruction_toys import LABELS, TRUE, images, truth_of, view_of


def test_the_mean_image_recovers_nothing() -> None:
    auxiliary = {"images": images(300, 7), "labels": torch.arange(300) % 2}
    view = view_of([3, 2], auxiliary=auxiliary)
    found = MeanRecord()(view, generator=torch.Generator()).score(view, truth_of(TRUE, LABELS, keep=True)).metrics
    assert found["recovered"].tolist() == [0, 0]
    assert float(found["identified"].mean()) < 0.5
    assert 8 < float(found["psnr"].mean()) < 13
