import math

import dp_accounting
import pytest
import torch
from dp_accounting import pld

from fedleak.core.history import History
from fedleak.core.privacy_ledger import PrivacyLedger, participations
from tests.attacks.runs import plain_view


def history(pseudonyms: list[int], rounds: list[int]) -> History:
    view = plain_view(len(pseudonyms))
    return History(**view.common() | {"pseudonyms": torch.tensor(pseudonyms)}, sent_in=torch.tensor(rounds))


TRAINING = history([7, 3, 7, 5, 7, 3, 5], [0, 0, 1, 1, 2, 2, 4])


def test_rounds_of_each_client_are_counted_once() -> None:
    clients, rounds = participations(TRAINING)
    assert clients.tolist() == [3, 5, 7]
    assert rounds.tolist() == [2, 2, 3]
    twice = history([1, 1, 1], [0, 0, 1])
    assert participations(twice)[1].tolist() == [2]


def test_epsilon_is_that_of_an_accountant() -> None:
    ledger = PrivacyLedger.of_history(TRAINING, precision=1 / 4, delta=1e-5)
    for count, client in ((2, 3), (3, 7)):
        event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(2.0), count)
        expected = pld.PLDAccountant(value_discretization_interval=1e-3).compose(event).get_epsilon(1e-5)
        assert float(ledger.epsilon_of(torch.tensor([client]))) == pytest.approx(expected, rel=2e-3)


def test_rows_are_of_the_worst_and_the_median_client() -> None:
    ledger = PrivacyLedger.of_history(TRAINING, precision=1 / 4, delta=1e-5)
    worst, median = ledger.rows()
    assert (worst["messages"], median["messages"], worst["clients"]) == (3, 2, 3)
    assert worst["declared"] == pytest.approx(float(ledger.epsilon.max()))
    assert median["declared"] == pytest.approx(float(ledger.epsilon.median()))
    assert "3 of 4 rounds" in str(worst["text"])
    assert "amplifies nothing" in str(worst["text"])
    assert "8 other" in str(ledger.rows(unlisted=8)[0]["text"])


def test_no_rows_of_one_round_and_no_number_without_a_clip() -> None:
    assert PrivacyLedger.of_history(history([1, 2], [0, 0]), precision=1.0, delta=1e-5).rows() == ()
    worst, _ = PrivacyLedger.of_history(TRAINING, precision=math.inf, delta=1e-5).rows()
    assert worst["declared"] is None
