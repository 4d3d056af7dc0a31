"""Local DP: the calibration, the law of the noise, the clip, and who draws what."""

import math
from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
import torch
from diffprivlib.mechanisms import GaussianAnalytic
from scipy import stats

from fedleak.core.errors import InputError
from fedleak.core.release import Release
from fedleak.core.seeding import generator_for
from fedleak.defenses.base import Update
from fedleak.defenses.local_dp import LocalDP, clip_factors, gaussian_scale

ITEMS = "item_embedding.weight"


def make_update(clients: torch.Tensor, *, padding: int = 0) -> Update:
    """Updates that depend on the client's number only; client k has k + 1 real rows."""
    width = int(clients.max()) + 1 + padding
    rows = torch.full((len(clients), width), -1)
    table = torch.zeros(len(clients), width, 4)
    bias = torch.zeros(len(clients), 3)
    for position, client in enumerate(clients.tolist()):
        draw = torch.Generator().manual_seed(client)
        rows[position, : client + 1] = torch.arange(client + 1) * 2
        table[position, : client + 1] = torch.randn(client + 1, 4, generator=draw)
        bias[position] = torch.randn(3, generator=draw)
    return Update({ITEMS: table, "mlp.0.bias": bias}, {ITEMS: rows})


def protect(defense: LocalDP, clients: torch.Tensor, *, padding: int = 0, seed: int = 7) -> Update:
    """The protected update; the one that went in is not changed."""
    generators = {p: generator_for(seed, "defense", 0, int(c)) for p, c in enumerate(clients)}
    update = make_update(clients, padding=padding)
    sent = defense.protect(update, generators.__getitem__)
    torch.testing.assert_close(update.deltas, make_update(clients, padding=padding).deltas, rtol=0, atol=0)
    assert update.background_scale == {}
    return sent


@pytest.mark.parametrize(("epsilon", "sigma"), [(1, 3.05), (20, 0.1719), (100, 0.0521), (500, 0.0189)])
def test_scale_is_the_published_one(epsilon: float, sigma: float) -> None:
    """At epsilon 20 the published code's own scale, 0.1711, misses delta by a quarter."""
    assert gaussian_scale(epsilon=epsilon, delta=1e-8, sensitivity=0.5) == pytest.approx(sigma, rel=5e-3)


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_scale_at_or_below_one_is_the_classical_formula(epsilon: float) -> None:
    by_hand = math.sqrt(2 * math.log(1.25 / 1e-8)) * 0.1 / epsilon
    assert gaussian_scale(epsilon=epsilon, delta=1e-8, sensitivity=0.1) == pytest.approx(by_hand)


def exact_delta(epsilon: float, sigma: float, sensitivity: float) -> Any:
    """The delta that holds (Balle and Wang 2018, theorem 8), in 60 digits."""
    with mpmath.workdps(60):
        multiplier = mpmath.mpf(sigma) / sensitivity
        half, shift = 1 / (2 * multiplier), epsilon * multiplier
        return mpmath.ncdf(half - shift) - mpmath.exp(epsilon) * mpmath.ncdf(-half - shift)


@pytest.mark.parametrize("delta", [0.9, 0.1, 1e-2, 1e-5, 1e-8, 1e-10, 1e-16, 1e-30, 1e-300, 5e-324])
def test_the_delta_asked_for_holds_and_no_noise_is_wasted(delta: float) -> None:
    grid = [1e-3, 0.3, 1.0, 1.0001, 1.5, 3.0, *np.arange(5.0, 32.0, 1.5), 50.0, 100.0, 300.0, 500.0, 700.0]
    for epsilon in map(float, grid):
        sigma = gaussian_scale(epsilon=epsilon, delta=delta, sensitivity=2.0)
        assert exact_delta(epsilon, sigma, 2.0) <= delta, epsilon
        assert epsilon <= 1 or exact_delta(epsilon, sigma / 1.0201, 2.0) > delta, epsilon


def test_an_update_that_has_diverged_is_sent_as_zeros_with_noise() -> None:
    """It has no norm to clip by; that it diverged must not show."""
    sent = {}
    for wrong in (0.0, math.nan, math.inf, -math.inf):
        update = Update({"a": torch.ones(3, 4), "b": torch.ones(3, 2)})
        update.deltas["a"][1] = 0
        update.deltas["b"][1] = torch.tensor([wrong, 0.0])
        generators = [generator_for(3, "defense", 0, client) for client in range(3)]
        sent[wrong] = LocalDP(clip=0.25, epsilon=5.0, delta=1e-8).protect(update, generators.__getitem__).deltas
    for deltas in sent.values():
        assert all(torch.equal(value, sent[0.0][name]) for name, value in deltas.items())
    large = Update({"a": torch.full((1, 4), 3e38), "b": torch.full((1, 2), math.nan)})
    free = LocalDP(clip=0.25, epsilon=5.0, delta=1e-8, parameters=["a"]).protect(large, lambda _: torch.Generator())
    assert bool(free.deltas["a"].isfinite().all())
    assert bool(free.deltas["b"].isnan().all())  # not covered


def test_noise_has_the_law_of_the_mechanism() -> None:
    defense = LocalDP(clip=0.25, epsilon=20.0, delta=1e-8)
    zero = Update({"w": torch.zeros(4, 50, 100)})
    generators = [generator_for(3, "defense", 0, client) for client in range(4)]
    noise = defense.protect(zero, generators.__getitem__).deltas["w"].flatten().double()
    mechanism = GaussianAnalytic(epsilon=20.0, delta=1e-8, sensitivity=0.5, random_state=0)
    sigma = math.sqrt(mechanism.variance(0.0))
    assert abs(float(noise.mean())) < 4 * sigma / math.sqrt(noise.numel())
    assert float(noise.var()) == pytest.approx(sigma**2, rel=4 * math.sqrt(2 / noise.numel()))
    assert stats.kstest(noise.numpy(), stats.norm(scale=sigma).cdf).pvalue > 1e-3
    theirs = [mechanism.randomise(0.0) for _ in range(2000)]
    assert stats.ks_2samp(noise.numpy(), theirs).pvalue > 1e-3


def test_clip_is_joint_and_never_exceeded() -> None:
    clients = torch.arange(6)
    update = make_update(clients)
    update.deltas[ITEMS][0], update.deltas["mlp.0.bias"][0] = 0.0, 1e-3
    factors = clip_factors(update.deltas, 0.3)
    clipped = {name: (delta.double() * factors.reshape(-1, *[1] * (delta.dim() - 1))).float()
               for name, delta in update.deltas.items()}  # fmt: skip
    norms = sum(delta.double().flatten(1).square().sum(1) for delta in clipped.values()).sqrt()  # type: ignore[union-attr]
    assert bool((norms <= 0.3).all())
    torch.testing.assert_close(norms[1:], torch.full((5,), 0.3, dtype=torch.float64), rtol=1e-5, atol=0)
    assert float(factors[0]) == 1.0


def test_protect_is_clip_plus_noise() -> None:
    """With a huge sensitivity-to-noise ratio the update that is sent is the clipped one."""
    clients = torch.tensor([3])
    defense = LocalDP(clip=0.25, epsilon=500.0, delta=0.5, sensitivity=1e-9)
    sent, raw = protect(defense, clients), make_update(clients)
    factor = float(clip_factors(raw.deltas, 0.25)[0])
    for name, delta in raw.deltas.items():
        torch.testing.assert_close(sent.deltas[name], delta * factor, rtol=1e-5, atol=1e-7)


def test_a_clients_noise_does_not_depend_on_other_clients() -> None:
    defense = LocalDP(clip=0.25, epsilon=5.0, delta=1e-8)
    together = protect(defense, torch.tensor([4, 1, 3]), padding=2)
    alone = protect(defense, torch.tensor([1]))
    torch.testing.assert_close(together.deltas[ITEMS][1, :2], alone.deltas[ITEMS][0], rtol=0, atol=0)
    torch.testing.assert_close(together.deltas["mlp.0.bias"][1], alone.deltas["mlp.0.bias"][0], rtol=0, atol=0)
    again = protect(defense, torch.tensor([1]), seed=8)
    assert not torch.equal(again.deltas[ITEMS], alone.deltas[ITEMS])


def test_padding_stays_zero_and_untouched_rows_are_in_the_background() -> None:
    defense = LocalDP(clip=0.25, epsilon=5.0, delta=1e-8)
    update = protect(defense, torch.tensor([0, 2]), padding=3)
    assert torch.equal(update.deltas[ITEMS] == 0, (update.rows[ITEMS] < 0)[..., None].expand(-1, -1, 4))
    assert update.background_scale == {ITEMS: defense.noise_scale}


def test_infinite_epsilon_does_nothing() -> None:
    clients = torch.tensor([2])
    for epsilon in (math.inf, "inf"):
        defense = LocalDP(clip=0.01, epsilon=epsilon, delta=1e-8)
        assert torch.equal(protect(defense, clients).deltas[ITEMS], make_update(clients).deltas[ITEMS])
        assert defense.releases((ITEMS,)) == ()


def test_a_subset_is_clipped_alone_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    defense = LocalDP(clip=0.25, epsilon=5.0, delta=1e-8, parameters=["item_*"])
    assert "only the parameters ['item_*']" in caplog.text
    clients = torch.tensor([2])
    sent = protect(defense, clients)
    assert torch.equal(sent.deltas["mlp.0.bias"], make_update(clients).deltas["mlp.0.bias"])
    expected = Release(clip=0.25, noise_scale=defense.noise_scale, parameters=(ITEMS,), epsilon=5.0, delta=1e-8)
    assert defense.releases((ITEMS, "mlp.0.bias")) == (expected,)


def test_a_sensitivity_below_twice_the_clip_gives_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    LocalDP(clip=0.25, epsilon=5.0, delta=1e-8, sensitivity=0.5)
    assert not caplog.records
    LocalDP(clip=0.25, epsilon=5.0, delta=1e-8, sensitivity=0.25)
    assert "can be 0.5 apart" in caplog.text


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"clip": 0.0}, "clip"),
        ({"clip": math.nan}, "clip"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": 1000.0}, "up to 700"),
        ({"clip": math.inf}, "finite"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"sensitivity": -1.0}, "sensitivity"),
    ],
)
def test_impossible_values_are_refused(change: dict[str, float], word: str) -> None:
    with pytest.raises(InputError, match=word):
        LocalDP(**{"clip": 0.25, "epsilon": 5.0, "delta": 1e-8, **change})  # type: ignore[arg-type]


def test_a_pattern_that_matches_nothing_is_refused() -> None:
    defense = LocalDP(clip=0.25, epsilon=5.0, delta=1e-8, parameters=["encoder.*"])
    with pytest.raises(InputError, match=r"encoder\.\*"):
        defense.releases((ITEMS,))


def test_two_noises_on_the_same_table_are_refused() -> None:
    defense = LocalDP(clip=0.25, epsilon=5.0, delta=1e-8)
    once = protect(defense, torch.tensor([2]))
    with pytest.raises(InputError, match="before"):
        defense.protect(once, lambda p: torch.Generator().manual_seed(p))
