"""The server sees sums; the global model learns what it would have learnt without."""

from pathlib import Path

import pytest
import torch

from defenses.base import Update
from defenses.secure_aggregation import SecureSum
from protocol.errors import InputError
from tests.ranking_toys import ranker, record, source


def test_what_is_seen_is_the_sum_of_each_aggregate_once_per_target() -> None:
    sent = Update({"w": torch.arange(12.0).reshape(6, 2)})
    seen, positions = SecureSum(participants=3, targets=2).server_sees(sent)
    assert positions is not None
    assert positions.tolist() == [0, 1, 3, 4]
    assert seen.deltas["w"].tolist() == [[6.0, 9.0], [6.0, 9.0], [24.0, 27.0], [24.0, 27.0]]


def test_the_noise_of_the_others_is_public() -> None:
    (release,) = SecureSum(participants=10, noise_scale=0.2).releases(("w",))
    assert release.noise_scale == pytest.approx(0.6)


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
    with pytest.raises(InputError, match="multiple of 4"):
        SecureSum(participants=4).server_sees(Update({"w": torch.ones(6, 2)}))


@pytest.mark.parametrize(("participants", "targets", "noise"), [(2, 3, 0.0), (0, 1, 0.0), (2, 1, -1.0)])
def test_impossible_values_are_refused(participants: int, targets: int, noise: float) -> None:
    with pytest.raises(InputError, match="SecureSum"):
        SecureSum(participants=participants, targets=targets, noise_scale=noise)
