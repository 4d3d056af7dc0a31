"""Reconstructions are scored by hash, and by likeness only where the records were kept."""

import numpy as np
import pytest
import torch

from fedleak.attacks.reconstruction.estimates import ReconstructionEstimate, reconstruction
from fedleak.core.estimates import EstimateError
from tests.reconstruction_toys import LABELS, SHAPE, TRUE, VIEW, images, truth_of, view_of


def test_what_is_exact_counts_once_in_any_order() -> None:
    guesses = [TRUE[0][[2, 0, 0]], images(2, 9)]
    sure = [torch.tensor([True, False, False]), torch.tensor([True, True])]
    estimate = reconstruction(guesses, labels=[torch.tensor([1, 1, -1]), torch.tensor([0, 0])], certified=sure)
    estimate.check(VIEW)
    scores = estimate.score(VIEW, truth_of(TRUE, LABELS)).metrics
    assert scores["recovered"].tolist() == pytest.approx([2 / 3, 0])
    assert scores["certified"].tolist() == pytest.approx([1 / 3, 1])
    assert scores["false-certified"].tolist() == [0, 2]
    assert float(scores["label-accuracy"][0]) == 0.5
    assert bool(scores["label-accuracy"][1].isnan())
    assert "psnr" not in scores


def test_the_likeness_of_kept_records() -> None:
    noise = 0.1 * torch.randn(2, *SHAPE, generator=torch.Generator().manual_seed(3))
    estimate = reconstruction([TRUE[0].flip(0), TRUE[1] + noise])
    scores = estimate.score(VIEW, truth_of(TRUE, LABELS, keep=True))
    found = scores.metrics
    assert float(found["psnr"][0]) == pytest.approx(80)
    assert float(found["psnr"][1]) == pytest.approx(20, abs=1)
    assert float(found["ssim"][0]) == pytest.approx(1, abs=1e-5)
    assert found["identified"].tolist() == [1, 1]
    assert found["recovered"].tolist() == [1, 0]
    assert scores.reconstruction is not None
    pair = scores.reconstruction.as_arrays()
    np.testing.assert_array_equal(pair.originals[:3], pair.found[:3])


def test_noise_is_identified_by_chance() -> None:
    many = [images(1, number) for number in range(200)]
    labels = [torch.tensor([0])] * 200
    view = view_of([1] * 200)
    guesses = [torch.rand(1, *SHAPE, generator=torch.Generator().manual_seed(1000 + n)) for n in range(200)]
    found = reconstruction(guesses).score(view, truth_of(many, labels, keep=True)).metrics
    assert found["identified-by-chance"].tolist() == pytest.approx([0.01] * 200)
    assert float(found["identified"].mean()) < 0.05
    auxiliary = {"images": images(500, 7), "labels": torch.zeros(500, dtype=torch.int64)}
    few = reconstruction(guesses[:2]).score(
        view_of([1, 1], auxiliary=auxiliary), truth_of(many[:2], labels[:2], keep=True)
    )
    assert few.metrics["identified-by-chance"].tolist() == pytest.approx([0.01] * 2)


def test_a_missing_reconstruction_is_no_hit() -> None:
    found = reconstruction([TRUE[0][:1], TRUE[1][:0]]).score(VIEW, truth_of(TRUE, LABELS, keep=True)).metrics
    assert found["identified"].tolist() == pytest.approx([1 / 3, 0])
    assert found["recovered"].tolist() == pytest.approx([1 / 3, 0])


def test_sentences_have_rouge() -> None:
    true = [torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0]])]
    guesses = [torch.tensor([[5, 6, 0, 0, 0], [1, 2, 9, 9, 9]])]
    found = reconstruction(guesses).score(view_of([2]), truth_of(true, [torch.zeros(2).long()], keep=True)).metrics
    assert found["recovered"].tolist() == [0.5]
    assert float(found["rouge1"]) == pytest.approx((1 + 2 * 2 / 9) / 2)
    assert float(found["rouge2"]) == pytest.approx((1 + 2 * 1 / 7) / 2)
    assert float(found["rouge-l"]) == pytest.approx((1 + 2 * 2 / 9) / 2)


@pytest.mark.parametrize("field", ["count", "labels", "certified", "records"])
def test_a_defective_estimate_is_refused(field: str) -> None:
    good = reconstruction(TRUE)
    values = {name: getattr(good, name) for name in ("records", "labels", "certified", "count")}
    bad = {"count": good.count + 2, "labels": good.labels.float(), "certified": torch.ones(2, 3, dtype=torch.bool)}
    values[field] = bad.get(field, good.records * torch.nan)
    with pytest.raises(EstimateError):
        ReconstructionEstimate(**values).check(VIEW)
