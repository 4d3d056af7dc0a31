"""Bootstrapped intervals cover the mean as often as they say."""

import numpy as np
import pytest
import torch

from fedleak.core.seeding import generator_for
from fedleak.evaluation.bootstrap import crossed_ratio


def errors(scale: float, trial: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Errors of two attacks on 10 clients under 10 seeds; a client is as hard for one as for the other."""
    random = np.random.default_rng(trial)
    hard = random.lognormal(sigma=0.8, size=(10, 1)) * random.lognormal(sigma=0.3, size=(1, 10))
    one, two = (hard * random.lognormal(-0.005, 0.1, size=(10, 10)) for _ in range(2))
    return torch.from_numpy(scale * one), torch.from_numpy(two)


def test_a_ratio_is_paired() -> None:
    one, two = errors(0.4)
    ratio, low, high = crossed_ratio(one, two, generator=generator_for(0, "ratio"))
    assert ratio == pytest.approx(float(one.sum() / two.sum()))
    assert low < ratio < high
    decoupled = crossed_ratio(one, two.flip(0), generator=generator_for(0, "ratio"))
    assert high - low < 0.25 * (decoupled[2] - decoupled[1])


def test_the_interval_of_a_ratio_covers_it() -> None:
    covered = 0
    for trial in range(60):
        _, low, high = crossed_ratio(*errors(0.4, trial), generator=generator_for(trial, "ratio"), resamples=300)
        covered += low <= 0.4 <= high
    assert covered >= 51


def test_a_ratio_leaves_out_pairs_without_two_values() -> None:
    nan = torch.nan
    one, two = torch.tensor([[1.0, nan], [3.0, 5.0]]), torch.tensor([[2.0, 9.0], [6.0, nan]])
    assert crossed_ratio(one, two, generator=generator_for(0, "ratio")) == pytest.approx((0.5, 0.5, 0.5))
    nothing = crossed_ratio(one, torch.zeros(2, 2), generator=generator_for(0, "ratio"))
    assert all(value != value for value in nothing)
