"""The most bits of an update: noise, declared epsilon, counted messages, sums, and the reason where none is known."""

import dataclasses
import math

import pytest
import torch

from fedleak.core.release import Release
from fedleak.core.view import RoundView
from fedleak.defenses.compression import Sign, TopK
from fedleak.evaluation.channel import no_bound, update_bits


def view(*releases: Release) -> RoundView:
    return RoundView(
        round=0,
        pseudonyms=torch.arange(3),
        example_counts=torch.ones(3),
        deltas={"weight": torch.zeros(3, 4, 5), "bias": torch.zeros(3, 4)},
        model={"weight": torch.zeros(4, 5), "bias": torch.zeros(4)},
        releases=releases,
    )


BOTH = ("weight", "bias")


def gaussian(numbers: int, ratio: float) -> float:
    return numbers / 2 * math.log2(1 + ratio**2 / numbers)


def bits(*releases: Release) -> float:
    found = update_bits(view(*releases))
    assert bool((found == found[0]).all())
    assert (no_bound(view(*releases)) == "") == bool(found.isfinite().all())
    return float(found[0])


def test_clip_and_noise_limit_the_bits_of_all_numbers() -> None:
    assert bits(Release(clip=2.0, noise_scale=0.5, parameters=BOTH)) == pytest.approx(gaussian(24, 4))


def test_parts_that_are_clipped_and_noised_apart_add_up() -> None:
    parts = [Release(clip=2.0, noise_scale=0.5, parameters=(name,)) for name in BOTH]
    assert bits(*parts) == pytest.approx(gaussian(20, 4) + gaussian(4, 4))


def test_clip_and_noise_may_be_two_releases() -> None:
    clip, noise = Release(clip=2.0, parameters=BOTH), Release(noise_scale=0.5, parameters=BOTH)
    assert bits(clip, noise) == pytest.approx(gaussian(24, 4))


def test_pure_epsilon_limits_the_bits() -> None:
    assert bits(Release(epsilon=0.5, delta=0.0, parameters=BOTH)) == pytest.approx(0.5 / math.log(2))


@pytest.mark.parametrize("message", [["+", "-", "0"], ["+", "-"]])
def test_few_values_for_each_number_limit_the_bits(message: list[str]) -> None:
    each = math.log2(len(message))
    assert bits(Release(bits=each, parameters=BOTH)) == pytest.approx(64 + 24 * each)


def test_the_least_limit_of_several_holds() -> None:
    loud = Release(clip=2.0, noise_scale=1e-9, parameters=BOTH)
    signs = Sign().releases(BOTH)
    assert bits(loud, *signs) == bits(*signs) == pytest.approx(64 + 24 * math.log2(3))


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9])
def test_the_largest_numbers_are_counted_with_their_places(share: float) -> None:
    d = 1000
    sent = math.ceil(share * d)
    places = math.log2(sum(math.comb(d, count) for count in range(sent + 1)))
    own = TopK(share=share).releases(BOTH)[0].bits
    assert own is not None
    assert places + 32 * share * d <= own * d <= places + 32 * share * d + 16


def test_a_sum_of_messages_carries_at_most_what_they_carry() -> None:
    noisy = view(Release(clip=2.0, noise_scale=0.5, parameters=BOTH))
    several = dataclasses.replace(noisy, messages=torch.tensor([1, 2, 3]))
    torch.testing.assert_close(update_bits(several), update_bits(noisy) * torch.tensor([1, 2, 3]))


def test_of_a_table_the_served_rows_count() -> None:
    noisy = dataclasses.replace(
        view(Release(clip=2.0, noise_scale=0.5, parameters=BOTH)),
        deltas={"weight": torch.zeros(3, 3, 5), "bias": torch.zeros(3, 4)},
        served=torch.tensor([[0, 1, 2], [0, 1, -1], [3, -1, -1]]),
        row_parameters=frozenset(["weight"]),
    )
    expected = torch.tensor([gaussian(numbers, 4) for numbers in (19, 14, 9)], dtype=torch.float64)
    torch.testing.assert_close(update_bits(noisy), expected)


def test_no_bound_is_known_without_noise_on_everything() -> None:
    assert math.isinf(bits(Release(clip=2.0, noise_scale=0.5, parameters=("bias",))))
    assert "no known noise on weight" in no_bound(view(Release(clip=2.0, noise_scale=0.5, parameters=("bias",))))
    assert math.isinf(bits(Release(epsilon=1.0, delta=1e-5, parameters=BOTH)))
    assert math.isinf(bits(Release(noise_scale=0.5, parameters=BOTH)))
    assert "clipped and noised" in no_bound(view(Release(noise_scale=0.5, parameters=BOTH)))
    assert "no known noise on the updates" in no_bound(view())


def test_no_bound_is_known_for_sums_of_an_unknown_number_of_messages() -> None:
    noisy = view(Release(clip=2.0, noise_scale=0.5, parameters=BOTH))
    unknown = dataclasses.replace(noisy, updates=torch.ones(3, 2))
    assert bool(update_bits(unknown).isinf().all())
    assert "number of messages" in no_bound(unknown)
