"""The aggregate holds the target's update and the noise of all the others; of sums, the model learns the same."""

from pathlib import Path

import pytest
import torch

from fedleak.core.errors import InputError
from fedleak.defenses.base import Defense, Update, with_whole_tables
from fedleak.defenses.device_noise import DeviceNoise
from fedleak.defenses.local_dp import LocalDP
from fedleak.defenses.secure_aggregation import PerElementSum, SecureAggregation, SecureSum
from tests.ranking_toys import ranker, record, source


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


@pytest.mark.parametrize(
    ("kind", "options", "name"),
    [
        (SecureAggregation, {"participants": 0, "noise_scale": 0.1}, "participants"),
        (SecureAggregation, {"participants": 2, "noise_scale": -0.1}, "noise_scale"),
        (SecureSum, {"participants": 2, "targets": 3}, "targets"),
        (SecureSum, {"participants": 0, "targets": 1}, "participants"),
        (SecureSum, {"participants": 2, "noise_scale": -1.0}, "noise_scale"),
        (PerElementSum, {"participants": 2, "threshold": 3}, "threshold"),
        (PerElementSum, {"participants": 2, "threshold": 0}, "threshold"),
    ],
)
def test_impossible_values_are_refused(kind: type[Defense], options: dict[str, float], name: str) -> None:
    with pytest.raises(InputError, match=name):
        kind(**options)


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


def test_release_of_a_sum_says_how_many_updates_are_in_it() -> None:
    """In the attacked protocol all but one are zero."""
    for kind, expected in ((SecureSum, 6), (SecureAggregation, 1)):
        (release,) = kind(participants=6, noise_scale=0.5).releases(("w",))
        assert release.participants == expected
        assert ("participants" in release.described()) == (expected > 1)


def test_noise_of_the_others_in_one_parameter_is_not_declared_for_another() -> None:
    defense = SecureAggregation(participants=5)
    defense.check_order([LocalDP(clip=1, epsilon=10, delta=1e-5, parameters=["a"])])
    noised, plain = defense.releases(("a", "b"))
    assert (noised.parameters, plain.parameters, plain.noise_scale) == (("a",), ("b",), 0)
    update = Update({"a": torch.zeros(1, 4), "b": torch.zeros(1, 4)})
    sent = defense.protect(update, lambda _: torch.Generator()).deltas
    assert (bool(sent["a"].all()), bool(sent["b"].any())) == (True, False)


def test_what_is_seen_is_the_sum_of_each_aggregate_once_per_target() -> None:
    sent = Update({"w": torch.arange(12.0).reshape(6, 2)})
    seen, positions = SecureSum(participants=3, targets=2).server_sees(sent)
    assert positions is not None
    assert positions.tolist() == [0, 1, 3, 4]
    assert seen.deltas["w"].tolist() == [[6.0, 9.0], [6.0, 9.0], [24.0, 27.0], [24.0, 27.0]]


def test_number_is_revealed_where_enough_clients_of_the_aggregate_change_it() -> None:
    sent = Update({"w": torch.tensor([[1.0, 0, 2], [1, 5, 0], [1, 0, 0], [0, 0, 3], [0, 7, 3], [0, 0, 3]])})
    for threshold, expected in ((1, [[3, 5, 2], [0, 7, 9]]), (2, [[3, 0, 0], [0, 0, 9]]), (3, [[3, 0, 0], [0, 0, 9]])):
        seen, positions = PerElementSum(participants=3, threshold=threshold).server_sees(sent)
        assert seen.deltas["w"].tolist() == expected
        assert positions is not None
        assert positions.tolist() == [0, 3]


def test_changes_that_cancel_each_other_count_as_contributions() -> None:
    sent = Update({"w": torch.tensor([[1.0, 2.0], [-1.0, 0.0]])})
    held = PerElementSum(participants=2).protect(sent, lambda _: torch.Generator()).deltas["w"]
    assert held.tolist() == [[1, 0], [-1, 0]]


def test_training_gets_what_the_sums_reveal() -> None:
    """In an incomplete aggregate too, as of clients that a server makes up."""
    draws = torch.Generator().manual_seed(0)
    value = torch.randn(5, 40, generator=draws) * (torch.rand(5, 40, generator=draws) < 0.5)
    defense = PerElementSum(participants=3, threshold=2)
    held = defense.protect(Update({"w": value}), lambda _: draws).deltas["w"]
    for own, now in ((value[:3], held[:3]), (value[3:], held[3:])):
        shown = (own != 0).sum(0) >= 2
        assert torch.equal(now, own * shown)
    none = defense.protect(Update({"w": value[:0]}), lambda _: draws).deltas["w"]
    assert none.shape == (0, 40)


@pytest.mark.integration
def test_the_model_learns_the_same(tmp_path: Path) -> None:
    data = source(queries_per_client=2, clients_per_round=20)
    plain, summed = ranker(data), ranker(data, defenses=[SecureSum(participants=10)])
    record(tmp_path / "plain", data, plain, rounds=2)
    recording = record(tmp_path / "summed", data, summed, rounds=2)
    for name, value in plain.public_parameters().items():
        assert torch.equal(value, summed.public_parameters()[name])
    assert len(recording.pseudonyms(0)) == 2


def test_a_cohort_that_cannot_be_split_is_refused() -> None:
    with pytest.raises(InputError, match="multiple"):
        SecureSum(participants=4).server_sees(Update({"w": torch.ones(6, 2)}))


def test_masks_of_a_secure_sum_cover_whole_tables() -> None:
    """A client sends every row, as its sum with others must not show which rows are its own."""
    names = ("embedding.weight", "bias")
    assert SecureSum(participants=2).noises_whole(names) == names
    assert SecureAggregation(participants=2).noises_whole(names) == ()
    rows = {"embedding.weight": torch.tensor([[0, 2], [2, -1]])}
    sent = Update({"embedding.weight": torch.tensor([[[1.0], [2.0]], [[3.0], [9.0]]])}, rows)
    whole = with_whole_tables(sent, ("embedding.weight",), {"embedding.weight": torch.zeros(4, 1)})
    seen, _ = SecureSum(participants=2).server_sees(whole)
    assert seen.deltas["embedding.weight"].tolist() == [[[1.0], [0.0], [5.0], [0.0]]]
