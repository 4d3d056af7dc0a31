"""The aggregate holds the target's update and the noise of all the others."""

import pytest
import torch

from defenses.base import Defense, Update
from defenses.device_noise import DeviceNoise
from defenses.local_dp import LocalDP
from defenses.secure_aggregation import SecureAggregation, SecureSum
from protocol.errors import InputError
from tests.ranking_toys import ranker, source


def test_noise_of_the_others_adds_up() -> None:
    defense = SecureAggregation(participants=10, noise_scale=0.2)
    update = Update({"w": torch.ones(3, 20000)})
    generators = [torch.Generator().manual_seed(number) for number in range(3)]
    sent = defense.protect(update, lambda position: generators[position]).deltas["w"]
    torch.testing.assert_close(sent.mean(1), torch.ones(3), atol=0.02, rtol=0)
    torch.testing.assert_close(sent.std(1), torch.full((3,), 0.6), atol=0.02, rtol=0)
    assert defense.releases(("w",))[0].noise_scale == pytest.approx(0.6)


def test_one_participant_or_no_noise_changes_nothing() -> None:
    update = Update({"w": torch.randn(2, 5)})
    for defense in (
        SecureAggregation(participants=1, noise_scale=0.2),
        SecureAggregation(participants=9, noise_scale=0),
    ):
        assert defense.protect(update, lambda _: torch.Generator()) is update


@pytest.mark.parametrize(("participants", "noise_scale"), [(0, 0.1), (2, -0.1)])
def test_impossible_values_are_refused(participants: int, noise_scale: float) -> None:
    with pytest.raises(InputError, match="participants"):
        SecureAggregation(participants=participants, noise_scale=noise_scale)


@pytest.mark.parametrize("kind", [SecureAggregation, SecureSum])
@pytest.mark.parametrize("noisy", [LocalDP(clip=0.25, epsilon=100, delta=1e-8), DeviceNoise(variance=2.25)])
def test_the_others_noise_is_what_the_defences_before_make_public(
    kind: type[SecureAggregation | SecureSum], noisy: Defense
) -> None:
    own = noisy.releases(("w",))[0].noise_scale
    for before, expected in (([], 0.0), ([noisy], 3 * own)):
        defense = kind(participants=10)
        ranker(source(), defenses=[*before, defense])
        assert defense.releases(("w",))[0].noise_scale == pytest.approx(expected)
    given = kind(participants=10, noise_scale=0.5)
    ranker(source(), defenses=[noisy, given])
    assert given.releases(("w",))[0].noise_scale == pytest.approx(1.5)


def test_noise_of_the_others_in_one_parameter_is_not_declared_for_another() -> None:
    defense = SecureAggregation(participants=5)
    defense.check_order([LocalDP(clip=1, epsilon=10, delta=1e-5, parameters=["a"])])
    noised, plain = defense.releases(("a", "b"))
    assert (noised.parameters, plain.parameters, plain.noise_scale) == (("a",), ("b",), 0)
    update = Update({"a": torch.zeros(1, 4), "b": torch.zeros(1, 4)})
    sent = defense.protect(update, lambda _: torch.Generator()).deltas
    assert (bool(sent["a"].all()), bool(sent["b"].any())) == (True, False)
