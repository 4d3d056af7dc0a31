"""The mean of a client's sums, against a loop over rounds and clients; and equal shares of everybody."""

from pathlib import Path

import pytest
import torch

from fedleak.attacks.sums_over_rounds.base import class_sums
from fedleak.attacks.sums_over_rounds.baselines import EqualShares, MeanOfSums
from fedleak.attacks.sums_over_rounds.estimates import SharesOverRounds
from fedleak.attacks.sums_over_rounds.received_sums import Participants
from fedleak.core.seeding import generator_for
from tests.attacks.runs import run
from tests.sum_toys import digits, history_of, record, scored, sums


@pytest.mark.integration
def test_shares_are_the_mean_of_a_clients_sums_or_of_all(tmp_path: Path) -> None:
    recording = record(tmp_path, digits(), rounds=3, defenses=[sums(4)])
    view = history_of(recording)
    participants = Participants.of(view)
    found = run(MeanOfSums(after=(1, 2)), view, SharesOverRounds)
    observed, rounds = class_sums(view, participants, 100, generator=generator_for(0, "attack"))
    for place, after in enumerate(found.after.tolist()):
        for client in range(len(participants.clients)):
            own = [number for number in range(after) if rounds[number].taking[0, client]]
            seen = [observed.observed[number][0] for number in own or range(after)]
            torch.testing.assert_close(found.shares[place, client], torch.stack(seen).mean(0))
    assert found.low.isnan().all()
    _, metrics = scored(MeanOfSums(), recording)
    assert "rounds-to-reveal" not in metrics


@pytest.mark.integration
def test_equal_shares_say_the_same_of_everybody_after_every_round(tmp_path: Path) -> None:
    view = history_of(record(tmp_path, digits(), rounds=3, defenses=[sums(4)]))
    found = run(EqualShares(after=(1, 2)), view, SharesOverRounds)
    assert found.after.tolist() == [1, 2, 3]
    assert bool((found.shares == 1 / found.shares.shape[2]).all())
