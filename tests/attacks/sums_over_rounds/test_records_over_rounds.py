"""Holders of records from sums over rounds: all named on a leaky toy, at chance where the sums are others'."""

from typing import Literal

import pytest
import torch

from fedleak.attacks.sums_over_rounds.estimates import Revealed
from fedleak.attacks.sums_over_rounds.records_over_rounds import HoldersOverRounds, HoldersToReveal, alike_participation
from fedleak.core.errors import ViewError
from fedleak.core.history import History
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.recordings.control import ControlRecording
from fedleak.recordings.recording import Recording
from fedleak.training.candidates import CandidateOptions
from tests.attacks.runs import plain_view
from tests.sum_toys import digits, record, scored, sums

CLIENTS = 10
TOLERANCE = 0.09
"""Three standard deviations of a share of 100 guesses of one of ten."""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Clients of ten digits each, all of which are in the pool."""
    split = ClientSplit(scheme="iid", clients=CLIENTS, examples_per_client=10)
    data = digits(split=split, auxiliary_per_class=0)
    pool, place = CandidateOptions(per_client=10), tmp_path_factory.mktemp("records")
    return record(place, data, rounds=12, hidden=32, defenses=[sums(4)], candidates=pool)


@pytest.mark.integration
def test_every_holder_is_named_once_no_two_clients_took_part_alike(recording: Recording) -> None:
    after, metrics = scored(HoldersToReveal(after=(1, 5)), recording)
    assert after == [1, 5, 12]
    assert bool((metrics["source"].mean(1).diff() > 0).all())
    assert bool((metrics["source"][-1] == 1).all())
    assert bool((metrics["auc"][-1] > 0.99).all())
    assert bool((metrics["revealed"][-1] == 1).all())
    assert bool((metrics["predicted-rounds-to-reveal"][-1] <= metrics["rounds-to-reveal"][-1]).all())


@pytest.mark.integration
def test_holders_among_other_participants_are_guessed(recording: Recording) -> None:
    _, metrics = scored(HoldersToReveal(shuffled=True), recording)
    assert float(metrics["source"].mean()) == pytest.approx(1 / CLIENTS, abs=TOLERANCE)
    assert "predicted-rounds-to-reveal" not in metrics


@pytest.mark.integration
@pytest.mark.parametrize("control", ["others", "noise"])
def test_holders_in_other_sums_are_guessed(recording: Recording, control: Literal["others", "noise"]) -> None:
    _, metrics = scored(HoldersToReveal(), ControlRecording(recording.directory, control))
    assert float(metrics["source"].mean()) == pytest.approx(1 / CLIENTS, abs=TOLERANCE)
    assert float(metrics["auc"].mean()) == pytest.approx(0.5, abs=TOLERANCE)


def test_clients_with_the_same_rounds_are_alike_and_so_is_one_without() -> None:
    taking = [torch.tensor([[1.0, 1, 0, 0], [0, 0, 1, 0]]), torch.tensor([[1.0, 0, 0, 0], [0, 1, 1, 0]])]
    assert alike_participation(taking).tolist() == [[True, True, False, True], [False, False, False, True]]


def test_scores_name_the_holder_of_each_record_and_skip_clients_without_truth() -> None:
    """Client 7 holds two records, of which one is named; client 9 holds one; client 8 sent no message of its own."""
    scores = torch.tensor([[[2.0, 0.0, 0.0, 1.0], [0.0, 3.0, 0.0, 0.0], [0.0, 0.0, 5.0, 0.0]]]).double()
    estimate = HoldersOverRounds(
        senders=torch.tensor([7, 8, 9]),
        after=torch.tensor([1]),
        scores=scores,
        hidden=torch.tensor([[False, False, True]]),
        revealed=Revealed(first=torch.tensor([1.0, 1.0, torch.nan]), predicted=torch.full((3,), torch.nan)),
    )
    fields = plain_view(2).common() | {"pseudonyms": torch.tensor([7, 9])}
    view = History(**fields, sent_in=torch.zeros(2, dtype=torch.int64))
    member = torch.tensor([[True, True, False, False], [False, False, True, False]])
    found = estimate.score(view, {"own_member": member, "clients": torch.tensor([70, 90])})
    assert found.metrics["source"].tolist() == [0.5, 1.0]
    assert found.metrics["revealed"].tolist() == [1.0, 0.0]
    assert found.metrics["rounds-to-reveal"][0] == 1
    assert found.units is not None
    assert found.units.tolist() == [70, 90]
    assert found.settings == {"rounds": [1, 1]}
    with pytest.raises(ViewError, match="holds"):
        estimate.score(view, {"own_member": torch.zeros(2, 4, dtype=torch.bool), "clients": torch.tensor([70, 90])})
