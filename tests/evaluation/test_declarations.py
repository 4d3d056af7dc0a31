"""Declarations that updates prove false, and true ones that they do not."""

import dataclasses
import math
from typing import Any

import pytest
import torch

from fedleak.core.declared_noise import noise_chances, without_refuted_noise
from fedleak.core.release import Release
from fedleak.core.view import RoundView
from fedleak.defenses.base import Update
from fedleak.defenses.rounded import Rounded
from fedleak.evaluation.causes import measured_causes
from fedleak.evaluation.declarations import false_in_views, value_bits
from fedleak.evaluation.noise_floor import declared_noise

CLIENTS, SHAPE = 6, (32, 64)
NUMBERS = math.prod(SHAPE)


def view(updates: torch.Tensor, *releases: Release) -> RoundView:
    return RoundView(
        round=0,
        pseudonyms=torch.arange(len(updates)),
        example_counts=torch.full((len(updates),), 10),
        deltas={"w": updates},
        model={"w": torch.zeros(updates.shape[1:])},
        releases=releases,
    )


def updates(norm: float, *, seed: int = 0) -> torch.Tensor:
    """``(6, 32, 64)`` updates of some norm."""
    made = torch.randn(CLIENTS, *SHAPE, generator=torch.Generator().manual_seed(seed))
    scaled: torch.Tensor = made / made.flatten(1).norm(dim=1)[:, None, None] * norm
    return scaled


def noise(scale: float, *, seed: int = 1) -> torch.Tensor:
    return scale * torch.randn(CLIENTS, *SHAPE, generator=torch.Generator().manual_seed(seed))


def test_noise_that_is_longer_than_the_update_is_a_false_declaration() -> None:
    seen = view(updates(0.1), Release(clip=1.0, noise_scale=0.01, parameters=("w",)))
    (sentence,) = false_in_views([seen])
    assert sentence == (
        "The declared noise is not there: noise of standard deviation 0.01 alone has a norm of about 0.453, and 6 of 6"
        " updates are shorter, with a median of 0.1"
    )
    assert declared_noise(seen) is None
    assert not any("as the clients declare" in cause.sentence for cause in measured_causes([seen], seed=0))


@pytest.mark.parametrize("norm", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_noise_that_is_there_is_not_refuted(norm: float, seed: int) -> None:
    sent = updates(norm, seed=seed) + noise(0.01, seed=seed + 10)
    seen = view(sent, Release(clip=1.0, noise_scale=0.01, parameters=("w",)))
    assert false_in_views([seen]) == []
    shares = declared_noise(seen)
    assert shares is not None
    assert float(shares.share.max()) <= 1


def test_only_noise_that_is_not_there_is_left_out() -> None:
    there, missing = (Release(noise_scale=0.1, parameters=(name,)) for name in ("w", "v"))
    own = view(updates(1.0) + noise(0.1), there, missing)
    both = dataclasses.replace(own, deltas={**own.deltas, "v": updates(1.0)})
    assert [release.noise_scale for release in without_refuted_noise(both).releases] == [0.1, 0.0]
    assert without_refuted_noise(own) is own


def test_noise_is_refuted_by_the_parameters_of_a_release_that_a_view_has() -> None:
    """Views of sums over rounds have the last layer alone."""
    declared = Release(noise_scale=0.1, parameters=("body", "w"))
    assert without_refuted_noise(view(updates(0.1), declared)).releases[0].noise_scale == 0.0
    assert without_refuted_noise(view(updates(1.0) + noise(0.1), declared)).releases[0].noise_scale == 0.1


def test_probability_of_short_updates_is_that_of_the_noise() -> None:
    """Of noise alone, the probability is uniform."""
    chances = torch.cat(
        [
            noise_chances(view(noise(0.01, seed=seed), Release(noise_scale=0.01, parameters=("w",))))
            for seed in range(40)
        ]
    )
    assert float(chances.mean()) == pytest.approx(0.5, abs=0.08)
    assert float((chances < 0.1).double().mean()) == pytest.approx(0.1, abs=0.06)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [1e-9, 1e-8, 1e-7, 1e-5])
def test_noise_that_is_lost_in_half_precision_is_no_false_declaration(scale: float, dtype: torch.dtype) -> None:
    stored = noise(scale).to(dtype).float()
    assert false_in_views([view(stored, Release(clip=1.0, noise_scale=scale, parameters=("w",)))]) == []


def test_what_follows_the_noise_may_make_an_update_shorter() -> None:
    noised = Release(clip=1.0, noise_scale=0.01, parameters=("w",))
    for later in (Release(bits=2.0, parameters=("w",)), Release(clip=0.1, parameters=("w",))):
        seen = view(updates(0.1).round(decimals=3), noised, later)
        assert not any("noise is not there" in sentence for sentence in false_in_views([seen]))


def test_what_devices_of_the_server_do_not_do_is_not_expected_of_all() -> None:
    others_only = Release(clip=0.01, noise_scale=0.01, parameters=("w",), own_devices=False)
    assert false_in_views([view(updates(0.1), others_only)]) == []


@pytest.mark.parametrize("bits", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("scale", [0.0, 0.002])
def test_a_clip_that_rounding_makes_longer_is_no_false_declaration(bits: int, scale: float) -> None:
    clipped = updates(0.99) + noise(scale)
    rounding = Rounded(bits=bits)
    sent = Update({"w": clipped}, {}, sent=torch.ones(CLIENTS, dtype=torch.bool), clients=torch.arange(CLIENTS))
    rounded = rounding.protect(sent, [torch.Generator().manual_seed(seed) for seed in range(CLIENTS)].__getitem__)
    releases = (Release(clip=1.0, noise_scale=scale, parameters=("w",)), *rounding.releases(("w",)))
    assert false_in_views([view(rounded.deltas["w"], *releases)]) == []


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("later", [{"participants": 3}, {"noise_scale": 0.1}], ids=["sum", "noise"])
def test_sums_of_numbers_of_few_bits_are_no_false_declaration(bits: int, later: dict[str, Any]) -> None:
    rounding, own = Rounded(bits=bits), updates(1.0) * torch.linspace(0.3, 1, CLIENTS)[:, None, None]
    sent = Update({"w": own}, {}, sent=torch.ones(CLIENTS, dtype=torch.bool), clients=torch.arange(CLIENTS))
    rounded = rounding.protect(sent, [torch.Generator().manual_seed(seed) for seed in range(CLIENTS)].__getitem__)
    received = rounded.deltas["w"]
    received = received.reshape(2, 3, *SHAPE).sum(1) if "participants" in later else received + noise(0.1)
    releases = (*rounding.releases(("w",)), Release(parameters=("w",), **later))
    assert false_in_views([view(received, *releases)]) == []


def test_updates_longer_than_their_clip_are_a_false_declaration() -> None:
    (sentence,) = false_in_views([view(updates(0.08), Release(clip=0.01, parameters=("w",)))])
    assert sentence == (
        "The declared clip is not there: the clients declare a norm of at most 0.01, and 6 of 6 updates are longer than"
        " that, with a median of 0.08"
    )
    assert false_in_views([view(updates(0.01), Release(clip=0.01, parameters=("w",)))]) == []
    with_noise = Release(clip=0.01, noise_scale=0.01, parameters=("w",))
    assert false_in_views([view(updates(0.01) + noise(0.01), with_noise)]) == []
    assert len(false_in_views([view(updates(2.0) + noise(0.01), with_noise)])) == 1


def test_a_sum_of_clipped_updates_may_be_as_long_as_all_of_them() -> None:
    own, others = Release(clip=0.01, parameters=("w",)), Release(participants=10, noise_scale=0.0, parameters=("w",))
    assert false_in_views([view(updates(0.09), own, others)]) == []
    assert len(false_in_views([view(updates(0.11), own, others)])) == 1


def test_numbers_with_more_values_than_declared() -> None:
    for bits in (1.0, 8.0):
        (sentence,) = false_in_views([view(updates(1.0), Release(bits=bits, parameters=("w",)))])
        assert sentence.startswith(f"The declared {bits:g} bits a number are not there: an update of w has up to 2,0")


def test_numbers_with_as_few_values_as_declared() -> None:
    sent = updates(1.0)
    signs = view(sent.sign(), Release(bits=math.log2(3), parameters=("w",)))
    levels = sent / sent.abs().amax((1, 2), keepdim=True) * 127
    eight = view(levels.round() / 127, Release(bits=8.0, parameters=("w",)))
    largest = sent.flatten(1).abs().topk(20).values[:, -1][:, None, None]
    sparse = view(sent * (sent.abs() >= largest), Release(bits=0.4, parameters=("w",)))
    answers = view(sent.sign(), Release(bits=0.1, parameters=("w",)))  # randomised response that is mostly wrong
    assert [false_in_views([one]) for one in (signs, eight, sparse, answers)] == [[]] * 4


def test_entropy_of_values() -> None:
    assert value_bits(torch.arange(256)) == pytest.approx(8.0)
    assert value_bits(torch.zeros(5)) == 0.0
