"""The bits an update can carry, against hand calculations and a channel that is simulated."""

import math

import pytest
import torch

from attacks.ranking.priors import capacity_bits, entropy_bits
from protocol.click_models import uniform_log_law


def test_one_dimension_of_signal_three_times_the_noise_carries_one_bit() -> None:
    assert capacity_bits(clip=3**0.5, noise_scale=1.0, dimensions=1) == pytest.approx(1.0)


def test_many_dimensions_carry_no_more_than_their_energy() -> None:
    """As d grows the capacity tends to E / (2 ln 2)."""
    assert capacity_bits(clip=0.25, noise_scale=0.01884, dimensions=10**7) == pytest.approx(127.0, abs=0.1)


def test_the_capacity_bounds_what_a_channel_tells() -> None:
    """One bit sent as +-1 through Gaussian noise: its mutual information lies below the capacity, and near it."""
    generator = torch.Generator().manual_seed(0)
    noise = 1.0
    sent = torch.randint(0, 2, (200_000,), generator=generator) * 2.0 - 1
    received = sent + noise * torch.randn(sent.shape, generator=generator)
    # I = 1 - E[log2(1 + exp(-2 x y / sigma^2))]
    information = 1 - float(torch.nn.functional.softplus(-2 * sent * received).mean()) / math.log(2)
    capacity = capacity_bits(clip=1.0, noise_scale=noise, dimensions=1)
    assert 0.9 * capacity < information < capacity


def test_uniform_clicks_have_the_logarithm_of_their_number_of_patterns() -> None:
    mask = torch.ones(2, 3, 5, dtype=torch.bool)
    mask[1, 2, 3:] = False
    mask[1, 1] = False  # a list that sends nothing
    expected = [3 * math.log2(30), math.log2(30) + math.log2(6)]
    assert entropy_bits(uniform_log_law(mask)).tolist() == pytest.approx(expected)
