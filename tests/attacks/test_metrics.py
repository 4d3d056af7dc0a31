import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, roc_auc_score

from attacks.interactions.thresholds import two_means
from attacks.metrics import auc_per_victim, bootstrap, f1_per_victim, roc_per_victim
from datamodules.keys import generator_for


def sample() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = generator_for(0, "metrics")
    scores = torch.randint(0, 6, (9, 30), generator=generator).float()
    labels = (torch.rand(9, 30, generator=generator) < 0.3).float()
    mask = torch.arange(30) < torch.randint(12, 31, (9, 1), generator=generator)
    return scores, labels, mask


def test_auc_with_ties_equals_sklearn() -> None:
    scores, labels, mask = sample()
    ours = auc_per_victim(scores, labels, mask)
    for victim in range(len(scores)):
        kept = mask[victim]
        assert ours[victim].item() == pytest.approx(roc_auc_score(labels[victim, kept], scores[victim, kept]))


def test_auc_of_one_class_is_no_number() -> None:
    assert auc_per_victim(torch.rand(1, 4), torch.ones(1, 4), torch.ones(1, 4, dtype=torch.bool)).isnan().all()


def test_f1_equals_sklearn() -> None:
    scores, labels, mask = sample()
    ours = f1_per_victim(scores > 3, labels, mask)
    for victim in range(len(scores)):
        kept = mask[victim]
        assert ours[victim].item() == pytest.approx(f1_score(labels[victim, kept], scores[victim, kept] > 3))


def test_roc_has_the_area_of_the_auc() -> None:
    generator = generator_for(0, "roc")
    labels = (torch.rand(4, 2000, generator=generator) < 0.3).float()
    scores = torch.randn(4, 2000, generator=generator) + labels
    mask = torch.ones(4, 2000, dtype=torch.bool)
    rates = roc_per_victim(scores, labels, mask, torch.linspace(0, 1, 501))
    area = torch.trapezoid(rates.double(), torch.linspace(0, 1, 501).double())
    torch.testing.assert_close(area, auc_per_victim(scores, labels, mask), atol=0.005, rtol=0)


def test_roc_of_tied_scores_has_the_area_of_the_auc() -> None:
    scores, labels, mask = sample()
    grid = torch.linspace(0, 1, 2001)
    area = torch.trapezoid(roc_per_victim(scores, labels, mask, grid), grid.double())
    torch.testing.assert_close(area, auc_per_victim(scores, labels, mask), atol=0.002, rtol=0)


def test_bootstrap_interval_covers_the_mean_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    covered = 0
    for trial in range(100):
        values = torch.from_numpy(random.normal(size=60))
        summary = bootstrap(values, generator=generator_for(trial, "bootstrap"), resamples=300)
        covered += summary.low <= 0 <= summary.high
    assert 85 <= covered <= 100


def test_bootstrap_leaves_out_what_has_no_value() -> None:
    summary = bootstrap(torch.tensor([1.0, torch.nan, 3.0]), generator=generator_for(0, "bootstrap"))
    assert summary.n == 2
    assert summary.mean == 2.0


def test_two_means_finds_the_gap() -> None:
    values = torch.tensor([[0.1, 0.2, 5.0, 0.15, 9.0], [1.0, 1.0, 1.0, 1.0, 1.0]])
    mask = torch.tensor([[True, True, True, True, False], [True] * 5])
    assert two_means(values, mask).tolist() == [[False, False, True, False, False], [False] * 5]


def test_the_bootstrap_of_many_victims_is_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.rand(50, generator=torch.Generator().manual_seed(0))
    whole = bootstrap(values, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr("attacks.metrics._NUMBERS_AT_ONCE", 333)
    assert bootstrap(values, generator=torch.Generator().manual_seed(1)) == whole


def test_roc_ends_where_everything_is_accepted() -> None:
    scores = torch.tensor([[3.0, 2.0, 1.0, 0.0, 9.0], [1.0, 1.0, 1.0, 0.0, 0.0]])
    labels = torch.tensor([[1.0, 0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0, 1.0]])  # positives below every negative
    mask = torch.tensor([[True, True, True, True, False], [True] * 5])
    rates = roc_per_victim(scores, labels, mask, torch.tensor([0.0, 0.5, 1.0]))
    assert rates[:, -1].tolist() == [1.0, 1.0]
    assert rates[0].tolist() == [0.5, 0.5, 1.0]
