"""Bootstrapped intervals cover the mean as often as they say."""

import numpy as np
import pytest
import torch

from evaluation.bootstrap import bootstrap
from protocol.seeding import generator_for


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


def test_the_bootstrap_of_many_victims_is_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.rand(50, generator=torch.Generator().manual_seed(0))
    whole = bootstrap(values, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr("evaluation.bootstrap._NUMBERS_AT_ONCE", 333)
    assert bootstrap(values, generator=torch.Generator().manual_seed(1)) == whole
