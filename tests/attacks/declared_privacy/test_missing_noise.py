import math

import pytest
import torch

from fedleak.attacks.declared_privacy.missing_noise import missing_noise, whole_numbers
from fedleak.core.seeding import generator_for


def noise_of(ratio: float, *shape: int, seed: int = 0) -> torch.Tensor:
    return math.sqrt(ratio) * torch.randn(*shape, generator=generator_for(seed, "noise of a sum"))


@pytest.mark.parametrize(("silent", "participants"), [(1, 10), (3, 10), (10, 10), (2, 4)])
def test_variance_that_lacks_is_that_of_the_silent_participants(silent: int, participants: int) -> None:
    x = noise_of(1 - silent / participants, 20, 30_000)
    found = missing_noise({"w": x}, x, bound=1.0, participants=participants, level=0.01)
    assert (found.low <= silent).all()
    assert (found.high >= silent).all()
    assert found.count == pytest.approx(silent, abs=0.25)
    assert found.alike.all()


def test_interval_holds_for_every_update_within_the_clip() -> None:
    """One of ten is silent, and the largest update, dense or sparse, adds the energy that its noise had."""
    n, bound = 20_000, 45.0
    for width in (n, n // 50):
        update = torch.zeros(1, n)
        update[:, :width] = bound / math.sqrt(width)
        x = noise_of(0.9, 40, n) + update
        found = missing_noise({"w": x}, x, bound=bound, participants=10, level=0.01)
        assert (found.low <= 1).all()
        assert (found.high >= 1).all()
    assert (found.low > 0.3).all(), "the blocks without update show it"


def test_update_without_a_clip_may_hide_any_number() -> None:
    x = noise_of(1.0, 3, 10_000)
    found = missing_noise({"w": x}, x, bound=math.inf, participants=10, level=0.01)
    assert (found.high == 10).all()
    assert (found.low == 0).all()


def test_parameters_that_lack_different_shares_are_no_participants() -> None:
    own = {"w": noise_of(1.0, 2, 10_000), "b": noise_of(0.5, 2, 5_000)}
    whole = torch.cat(list(own.values()), 1)
    assert not missing_noise(own, whole, bound=1.0, participants=10, level=0.01).alike.any()


def test_padding_does_not_count() -> None:
    x = noise_of(0.9, 2, 40_000)
    x[:, 30_000:] = torch.nan
    found = missing_noise({"w": x}, x, bound=1.0, participants=10, level=0.01)
    assert found.count == pytest.approx(1, abs=0.3)


def test_whole_numbers_within_an_interval() -> None:
    assert list(whole_numbers(0.9, 1.2)) == [1]
    assert list(whole_numbers(0.2, 3.1)) == [1, 2, 3]
    assert list(whole_numbers(0.55, 0.65)) == []
    assert list(whole_numbers(-1.0, 0.5)) == []
