"""p-values are uniform or larger for noise and any clipped update, and each test finds its fault."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri
from scipy.stats import ncx2

from fedleak.attacks.declared_privacy.noise_tests import grid, law, quiet_half, scale, upper_tail, zeros

MESSAGES, NUMBERS = 400, 640


def messages(signal: str, bound: float, seed: int = 0) -> torch.Tensor:
    """Noise and an update of norm `bound`, which is dense, in a few blocks, or absent."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(MESSAGES, NUMBERS, generator=generator)
    if signal == "none":
        return noise
    update = torch.randn(MESSAGES, NUMBERS, generator=generator)
    if signal == "rows":
        update[:, 64:] = 0
    return noise + bound * torch.nn.functional.normalize(update, dim=1)


@pytest.mark.parametrize("signal", ["none", "dense", "rows"])
@pytest.mark.parametrize("bound", [0.5, 5.0, 50.0])
def test_no_update_within_the_clip_is_a_fault(signal: str, bound: float) -> None:
    x = messages(signal, bound)
    found = scale(x, bound, level=0.01)
    shape = law(x, np.full(MESSAGES, bound**2))
    for p in (found.too_low, found.too_high, shape.smirnov, shape.anderson, grid(x), zeros(x)[0]):
        known = p[~np.isnan(p)]
        # 400 draws: of 4 expected below 0.01, 13 or more have a probability of 0.0003.
        assert (known <= 0.01).sum() < 13


@pytest.mark.parametrize(("factor", "side"), [(0.8, "too_low"), (1.25, "too_high")])
def test_another_scale_is_found_in_one_message(factor: float, side: str) -> None:
    x = factor * messages("dense", 0.5)
    p = getattr(scale(x, 0.5, level=0.01), side)
    assert (p < 1e-3).mean() > 0.9


def test_a_message_of_one_number_by_hand() -> None:
    found = scale(torch.tensor([[0.01], [1.0]]), 0.0, level=0.05)
    # A standard normal number is between -0.01 and 0.01 with probability 0.00798; a p-value is at most 1.
    assert found.too_low.tolist() == pytest.approx([2 * math.erf(0.01 / 2**0.5), 1])
    assert found.ratio.tolist() == pytest.approx([0.01, 1])


def test_intervals_hold_the_scale() -> None:
    for signal, bound in (("none", 0.5), ("dense", 2.0), ("rows", 200.0)):
        found = scale(1.1 * messages(signal, bound / 1.1), bound, level=0.05)
        inside = (found.low <= 1.1) & (found.high >= 1.1)
        assert inside.mean() >= 0.93, signal
        assert np.median(found.ratio) == pytest.approx(1.1, rel=0.02)


def test_a_dense_update_that_may_hide_the_noise_leaves_no_estimate() -> None:
    x = messages("dense", 1.0) + torch.linspace(0, 40, NUMBERS)
    assert np.isnan(scale(x, 2000.0, level=0.05).ratio).all()


def test_the_bound_of_the_upper_tail_is_above_the_exact_one() -> None:
    energy = np.array([700.0, 800.0, 900.0, 1000.0])
    exact = ncx2.sf(energy, 640, 25)
    bound = upper_tail(energy, np.full(4, 640.0), 25.0)
    assert (bound >= exact).all()
    assert bound[-1] < 1e-10
    assert (upper_tail(energy, np.full(4, 640.0), np.inf) == 1).all()


@pytest.mark.parametrize("kind", ["laplace", "uniform", "truncated"])
def test_another_law_is_found(kind: str) -> None:
    generator = torch.Generator().manual_seed(1)
    uniform = torch.rand(20, 10_000, generator=generator, dtype=torch.float64)
    if kind == "laplace":
        x = -(uniform - 0.5).sign() * torch.log1p(-2 * (uniform - 0.5).abs()) / 2**0.5
    else:
        x = (uniform - 0.5) * 12**0.5 if kind == "uniform" else torch.special.ndtri(0.02 + 0.96 * uniform)
    found = law(x.float(), np.full(20, 1.0))
    assert (np.minimum(found.smirnov, found.anderson) < 1e-6).all()
    assert found.conclusive.all()


@pytest.mark.parametrize("count", [8, 20, 400])
def test_the_p_value_of_anderson_is_that_of_the_published_table(count: int) -> None:
    """With the table's factor for small samples, the critical values 0.752 and 1.035 have p-values of 5 % and 1 %."""
    quantiles = ndtri((np.arange(count) + 0.5) / count)

    def sample(power: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.asarray(np.sign(quantiles) * np.abs(quantiles) ** power)  # the larger, the heavier the tails

    def statistic(power: float) -> float:
        z = sample(power) / sample(power).std(ddof=1)
        total = sum((2 * i + 1) * (log_ndtr(z[i]) + log_ndtr(-z[-1 - i])) for i in range(count))
        return float((-count - total / count) * (1 + 0.75 / count + 2.25 / count**2))

    for critical, expected in ((0.752, 0.05), (1.035, 0.01)):
        power = brentq(lambda power, critical=critical: statistic(power) - critical, 1, 5)
        found = law(torch.from_numpy(sample(power))[None], np.zeros(1)).anderson
        assert float(found[0]) == pytest.approx(expected, rel=0.03)


def test_another_law_would_be_found_in_enough_numbers() -> None:
    """Of n numbers, 0.05 sqrt(n) is to be above 2.6, and the signal's 0.4 allowed / sqrt(n) in addition."""
    x = torch.randn(1, 3000, generator=torch.Generator().manual_seed(4))
    fewest = [(2704, 0.0, False), (2705, 0.0, True), (2900, 0.0, True), (2900, 20.0, False)]
    for count, allowed, expected in fewest:
        assert bool(law(x[:, :count], np.full(1, allowed)).conclusive[0]) == expected


def test_padding_is_no_number() -> None:
    x = messages("none", 0.5)[:40]
    padded = torch.cat([x, torch.full_like(x, torch.nan)], dim=1)
    for one, other in zip(vars(law(x, np.ones(40))).values(), vars(law(padded, np.ones(40))).values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    for name in ("ratio", "too_low", "too_high", "bulk"):
        plain, filled = (getattr(scale(y, 0.5, level=0.01), name) for y in (x, padded))
        np.testing.assert_allclose(plain, filled, rtol=1e-6)


@pytest.mark.parametrize("longer", [1.5, 2, 5, 50])
def test_a_message_much_shorter_than_others_has_the_interval_that_it_has_alone(longer: float) -> None:
    """With a clip that allows a signal of more energy than the noise has, the interval is that of the quiet blocks."""
    x = messages("none", 0.5)[:10]
    padding = torch.full((10, int((longer - 1) * NUMBERS)), torch.nan)
    alone, padded = (scale(y, math.inf, level=0.05) for y in (x, torch.cat([x, padding], dim=1)))
    assert np.isfinite(alone.ratio).all()
    for name in ("ratio", "low", "high", "bulk", "too_low", "too_high"):
        np.testing.assert_allclose(getattr(alone, name), getattr(padded, name), rtol=1e-6, err_msg=name)


def test_a_message_without_numbers_says_nothing_of_its_noise() -> None:
    x = messages("none", 0.5)[:2]
    x[1] = torch.nan
    found = scale(x, 0.5, level=0.05)
    assert found.too_low[1] == found.too_high[1] == 1
    assert np.isnan([found.ratio[1], found.low[1], found.high[1], found.energy_ratio[1]]).all()


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_rounded_noise_is_on_a_grid(kind: torch.dtype) -> None:
    x = torch.randn(10, 4096, generator=torch.Generator().manual_seed(2))
    assert (grid(x) > 1e-6).all()
    assert (grid(x.to(kind).float()) < 1e-12).all()
    assert np.isnan(grid(x[:, :100])).all()


def test_masked_noise_leaves_zeros() -> None:
    x = torch.randn(10, 1000, generator=torch.Generator().manual_seed(3))
    assert (zeros(x)[0] == 1).all()
    x[:, ::4] = 0
    assert (zeros(x)[1] == 0.25).all()
    assert (zeros(x)[0] < 1e-12).all()


def test_the_quieter_half_has_the_law_of_noise() -> None:
    x = messages("rows", 100.0)
    quiet = quiet_half(x)
    assert quiet.shape == (MESSAGES, NUMBERS // 4)
    assert float(quiet.square().mean()) == pytest.approx(1, abs=0.02)
    assert float(law(quiet.reshape(1, -1), np.ones(1)).smirnov[0]) > 0.01
