"""Estimates over rounds: the truth after a number of rounds, from when on a client is revealed, and scores by hand."""

import pytest
import torch
from torch import Tensor

from fedleak.attacks.sums_over_rounds.estimates import Revealed, SharesOverRounds, first_revealed, truth_after
from fedleak.core.errors import ViewError
from fedleak.core.estimates import EstimateError
from fedleak.core.history import History
from tests.attacks.runs import plain_view

SENT_IN = [2, 2, 5, 5, 9]
SENDERS = [7, 3, 7, 4, 7]
"""Client 7 sends in all three rounds, which have the numbers 2, 5 and 9; clients 3 and 4 in one."""


def messages() -> History:
    fields = plain_view(5).common() | {"pseudonyms": torch.tensor(SENDERS)}
    return History(**fields, sent_in=torch.tensor(SENT_IN))


def test_truth_is_that_of_the_last_message_up_to_then_or_of_the_first() -> None:
    values = torch.tensor([10, 30, 11, 40, 12])
    found, known = truth_after(messages(), values, torch.tensor([3, 4, 7, 8]), torch.tensor([1, 2, 3, 50]))
    assert known.tolist() == [True, True, True, False]
    assert found[:, 0].tolist() == [30] * 4
    assert found[:, 1].tolist() == [40] * 4  # of the second round, although asked after the first
    assert found[:, 2].tolist() == [10, 11, 12, 12]


def test_the_order_of_messages_does_not_matter_for_the_truth() -> None:
    order = torch.tensor([4, 2, 0, 3, 1])
    values = torch.tensor([[10], [30], [11], [40], [12]])
    senders, after = torch.tensor([3, 7]), torch.tensor([1, 2, 3])
    expected, _ = truth_after(messages(), values, senders, after)
    found, _ = truth_after(messages().select(order), values[order], senders, after)
    assert torch.equal(found, expected)


def test_a_client_is_revealed_when_it_is_not_hidden_for_the_first_time() -> None:
    hidden = torch.tensor([[True, False, True, True], [False, True, True, True], [True, True, True, False]])
    assert first_revealed(hidden).nan_to_num(-1).tolist() == [2, 1, -1, 3]
    assert first_revealed(hidden).dtype == torch.float64


def test_rounds_to_reveal_are_listed_once_after_the_last_number_of_rounds() -> None:
    revealed = Revealed(first=torch.tensor([2.0, torch.nan, 4.0]), predicted=torch.full((3,), torch.nan))
    chosen = revealed.of(torch.tensor([True, True, False]))
    found = chosen.at_the_end(2)
    assert list(found) == ["rounds-to-reveal"]  # nothing is predicted of anybody
    assert found["rounds-to-reveal"].nan_to_num(-1).tolist() == [-1, -1, 2, -1]


SENSITIVE = 0.3


def shares(low: Tensor, high: Tensor) -> SharesOverRounds:
    """Of clients 7, 3 and 8 after one and two rounds; nobody knows the truth of client 8."""
    return SharesOverRounds(
        senders=torch.tensor([7, 3, 8]),
        after=torch.tensor([1, 2]),
        shares=torch.tensor([[[0.5, 0.5], [0.5, 0.5], [1, 0]], [[0.2, 0.8], [0.75, 0.25], [1, 0]]]).double(),
        low=low,
        high=high,
        predicted_interval=torch.tensor([[0.9, 0.8, 0.7], [0.3, 0.2, 0.1]]).double(),
        sensitive=SENSITIVE,
        revealed=Revealed(first=torch.tensor([torch.nan, 2, 1]), predicted=torch.tensor([2.0, 2, 2])),
    )


TRUTH = {
    "class_counts": torch.tensor([[1, 9], [3, 1], [2, 8], [0, 5], [3, 7]]),
    "clients": torch.tensor([70, 30, 70, 40, 70]),
}


def test_scores_are_of_known_clients_after_each_number_of_rounds() -> None:
    low = torch.tensor([[[0.2, 0.2], [0.3, 0.3], [0, 0]], [[0.1, 0.7], [0.75, 0.25], [0, 0]]]).double()
    high = torch.tensor([[[0.8, 0.8], [0.7, 0.7], [1, 1]], [[0.3, 0.9], [0.75, 0.25], [1, 1]]]).double()
    estimate = shares(low, high)
    estimate.check(messages())
    found = estimate.score(messages(), TRUTH)
    assert found.units is not None
    assert found.units.tolist() == [70, 30, 70, 30]
    assert found.settings == {"rounds": [1, 1, 2, 2]}
    assert found.metrics["l1"].tolist() == pytest.approx([0.8, 0.5, 0.0, 0.0], abs=1e-6)  # another truth in round 5
    assert found.metrics["exact"].tolist() == [0, 0, 1, 1]
    assert found.metrics["coverage"].tolist() == [0, 0, 1, 1]
    assert found.metrics["interval"].tolist() == pytest.approx([0.6, 0.4, 0.2, 0.0])
    assert found.metrics["revealed"].tolist() == [0, 0, 1, 1]
    assert found.metrics["predicted-interval"].tolist() == pytest.approx([0.9, 0.8, 0.3, 0.2])
    assert found.metrics["rounds-to-reveal"].nan_to_num(-1).tolist() == [-1, -1, -1, 2]
    assert found.metrics["predicted-rounds-to-reveal"].nan_to_num(-1).tolist() == [-1, -1, 2, 2]


def test_shares_without_intervals_are_scored_by_their_distance_alone() -> None:
    nothing = torch.full((2, 3, 2), torch.nan).double()
    found = shares(nothing, nothing).score(messages(), TRUTH)
    assert {"coverage", "interval", "revealed", "predicted-interval"}.isdisjoint(found.metrics)
    assert found.metrics["l1"].tolist() == pytest.approx([0.8, 0.5, 0.0, 0.0], abs=1e-6)


def test_shares_of_other_classes_or_of_nobody_are_refused() -> None:
    nothing = torch.full((2, 3, 2), torch.nan).double()
    other = {**TRUTH, "class_counts": torch.ones(5, 4)}
    with pytest.raises(ViewError, match="classes"):
        shares(nothing, nothing).score(messages(), other)
    strangers = History(**plain_view(2).common(), sent_in=torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ViewError, match="clients"):
        shares(nothing, nothing).score(strangers, {name: value[:2] for name, value in TRUTH.items()})
    with pytest.raises(EstimateError, match="low"):
        shares(nothing[:1], nothing).check(messages())
