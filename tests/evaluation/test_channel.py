"""The most bits of an update: the Gaussian channel, declared epsilon, and nothing where no bound is known."""

import dataclasses
import math

import torch

from evaluation.channel import update_bits
from protocol.view import Release, RoundView


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


def test_clip_and_noise_limit_the_bits_of_all_numbers() -> None:
    found = update_bits(view(Release(clip=2.0, noise_scale=0.5, parameters=BOTH)))
    torch.testing.assert_close(found, torch.full((3,), 12 * math.log2(1 + 16 / 24), dtype=torch.float64))


def test_pure_epsilon_limits_the_bits() -> None:
    found = update_bits(view(Release(epsilon=0.5, delta=0.0, parameters=BOTH)))
    torch.testing.assert_close(found, torch.full((3,), 0.5 / math.log(2), dtype=torch.float64))


def test_no_bound_is_known_without_noise_on_everything_or_for_sums() -> None:
    assert bool(update_bits(view(Release(clip=2.0, noise_scale=0.5, parameters=("bias",)))).isinf().all())
    assert bool(update_bits(view(Release(epsilon=1.0, delta=1e-5, parameters=BOTH))).isinf().all())
    noisy = view(Release(clip=2.0, noise_scale=0.5, parameters=BOTH))
    assert bool(update_bits(dataclasses.replace(noisy, messages=torch.tensor([1, 2, 3]))).isinf().all())
