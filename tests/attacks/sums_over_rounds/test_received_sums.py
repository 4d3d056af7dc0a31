"""Sums as updates of one client: the mean of the participants' own updates, its weights and its algorithm."""

import dataclasses
from typing import NamedTuple

import pytest
import torch

from fedleak.attacks.sums_over_rounds.received_sums import Participants, each_round_of_sums, round_sums
from fedleak.client.algorithm import ExampleAlgorithm
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.errors import ViewError
from fedleak.core.history import History
from fedleak.core.release import Release
from fedleak.core.view import RoundView
from fedleak.recordings.recording import Recording
from tests.attacks.runs import plain_view
from tests.composition_toys import learner
from tests.sum_toys import digits, history_of, record, sums


class Trained(NamedTuple):
    """One training, whose server receives every update, or sums of five."""

    single: Recording
    summed: Recording


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    place, data = tmp_path_factory.mktemp("sums"), digits(clients=20, each=20, clients_per_round=5)
    single = record(place / "single", data, rounds=3)
    return Trained(single, record(place / "summed", data, rounds=3, defenses=[sums(5)]))


@pytest.mark.integration
def test_a_rescaled_sum_is_the_mean_of_the_clients_own_updates(trained: Trained) -> None:
    view = history_of(trained.summed)
    participants = Participants.of(view)
    assert torch.equal(participants.clients, torch.unique(view.pseudonyms))
    assert set(participants.examples.tolist()) == {20}
    rounds = list(each_round_of_sums(view, participants))
    assert len(rounds) == 3
    for part, own in zip(rounds, trained.single.views(), strict=True):
        assert part.view.victims == 1
        assert part.view.example_counts.tolist() == [100]
        torch.testing.assert_close(part.weights.sum(1), torch.ones(1, dtype=torch.float64))
        taking = participants.clients[part.taking[0] > 0]
        assert taking.tolist() == sorted(own.pseudonyms.tolist())
        for name, value in own.deltas.items():
            torch.testing.assert_close(part.view.deltas[name][0], value.mean(0), atol=1e-6, rtol=1e-4)
    assert len(list(each_round_of_sums(view, participants, 2))) == 2


@pytest.mark.integration
def test_recordings_of_single_updates_have_no_participants(trained: Trained) -> None:
    view = history_of(trained.single)
    with pytest.raises(ViewError, match="sums"):
        Participants.of(view)
    (first, *_) = view.each_round()
    with pytest.raises(ViewError, match="sums"):
        round_sums(first, Participants(first.pseudonyms, first.example_counts))


GROUPS = torch.tensor([[3, 5, 8], [3, 5, 8], [2, 9, -1]])
COUNTS = torch.tensor([10, 20, 35, 40, 25])
"""Of clients 3, 5, 8, 2 and 9; in batches of ten they make 1, 2, 4, 4 and 3 steps."""
PARTICIPANTS = Participants(torch.tensor([2, 3, 5, 8, 9]), torch.tensor([40, 10, 20, 35, 25]))


def unequal(local: LocalTraining, releases: tuple[Release, ...] = ()) -> RoundView:
    deltas = {"w": torch.tensor([[7.0, 14.0], [7.0, 14.0], [1.0, 2.0]])}
    return dataclasses.replace(
        plain_view(3, deltas=deltas, model={"w": torch.zeros(2)}, example_counts=COUNTS[:3]),
        participants=GROUPS,
        algorithm=learner(local),
        releases=releases,
    )


def test_clients_weigh_as_the_steps_that_they_make() -> None:
    found = round_sums(unequal(LocalTraining(optimizer="sgd", batch_size=10)), PARTICIPANTS)
    two, three = 0, 1  # in the order of the participants' pseudonyms
    expected = torch.zeros(2, 5, dtype=torch.float64)
    expected[two, [0, 4]] = torch.tensor([4, 3]).double() / 7
    expected[three, [1, 2, 3]] = torch.tensor([1, 2, 4]).double() / 7
    torch.testing.assert_close(found.weights, expected)
    assert found.view.example_counts[[two, three]].tolist() == [65, 65]
    assert isinstance(found.view.algorithm, ExampleAlgorithm)
    assert found.view.algorithm.steps(torch.tensor([65])).tolist() == [3]  # 14 steps of five clients
    torch.testing.assert_close(found.view.deltas["w"][three], torch.tensor([7.0, 14.0]) * 3 / 7)
    torch.testing.assert_close(found.view.deltas["w"][two], torch.tensor([1.0, 2.0]) * 3 / 7)


def test_one_pass_in_batches_stays_one_over_all_examples() -> None:
    local = LocalTraining(optimizer="sgd", batch_size=10)
    found = round_sums(unequal(local), PARTICIPANTS, batches=True)
    assert isinstance(found.view.algorithm, ExampleAlgorithm)
    assert found.view.algorithm.local == local
    sent = torch.tensor([[7.0, 14.0], [1.0, 2.0]])
    assert sorted(found.view.deltas["w"].tolist()) == sorted(sent.tolist())


def test_a_release_is_scaled_as_its_sum_is() -> None:
    release = Release(noise_scale=0.6, clip=3.0, parameters=("w",))
    found = round_sums(
        unequal(LocalTraining(optimizer="sgd", batch_size=None), (release,)).select(torch.arange(2)), PARTICIPANTS
    )
    (scaled,) = found.view.releases
    assert scaled.noise_scale == pytest.approx(0.2)
    assert scaled.clip == pytest.approx(1.0)


def test_noise_on_sums_of_different_numbers_of_steps_is_refused() -> None:
    release = Release(noise_scale=0.6, parameters=("w",))
    with pytest.raises(ViewError, match="noise"):
        round_sums(unequal(LocalTraining(optimizer="sgd", batch_size=None), (release,)), PARTICIPANTS)


def test_clients_of_whom_the_server_has_no_message_count_as_the_mean_of_the_others() -> None:
    common = plain_view(3, example_counts=torch.tensor([10, 21, 40])).common()
    fields = {**common, "pseudonyms": torch.tensor([3, 5, 2]), "participants": GROUPS}
    found = Participants.of(History(**fields, sent_in=torch.zeros(3, dtype=torch.int64)))
    assert found.clients.tolist() == [2, 3, 5, 8, 9]
    assert found.examples.tolist() == [40, 10, 21, 24, 24]
    assert found.matrix(GROUPS).tolist() == [[0, 1, 1, 1, 0], [0, 1, 1, 1, 0], [1, 0, 0, 0, 1]]
