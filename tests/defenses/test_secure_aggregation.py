"""The aggregate holds the target's update and the noise of all the others."""

import pytest
import torch

from defenses.base import Update
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
def test_the_others_noise_is_that_of_their_local_dp(kind: type[SecureAggregation | SecureSum]) -> None:
    private = LocalDP(clip=0.25, epsilon=100, delta=1e-8)
    for before, expected in (([], 0.0), ([private], 3 * private.noise_scale)):
        defense = kind(participants=10)
        ranker(source(), defenses=[*before, defense])
        assert defense.releases(("w",))[0].noise_scale == pytest.approx(expected)
    given = kind(participants=10, noise_scale=0.5)
    ranker(source(), defenses=[private, given])
    assert given.noise_scale == 0.5
