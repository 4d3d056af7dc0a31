"""Pairs of messages are drawn evenly and scored as scikit-learn scores them."""

import pytest
import torch
from sklearn.metrics import average_precision_score

from fedleak.attacks.matching.estimates import MatchingEstimate
from fedleak.core.history import History
from fedleak.core.scoring import precision_at_positives
from fedleak.core.seeding import generator_for
from fedleak.evaluation.message_selection import draw_pairs
from tests.attacks.runs import plain_view


def test_matching_is_the_average_precision_over_all_pairs_where_users_have_as_many() -> None:
    generator = generator_for(0, "matching")
    truth = torch.arange(12) % 4
    everything = torch.arange(12)
    pairs = draw_pairs(everything[:8], everything[8:], truth, each=1, generator=generator)
    view = History(**plain_view(12).common() | {"pairs": pairs}, sent_in=0 * everything)
    scores = torch.rand(len(pairs), generator=generator)
    found = MatchingEstimate(scores=scores).score(view, {"user": truth, "known_user": truth[:0]})
    match = truth[pairs[:, 0]] == truth[pairs[:, 1]]
    assert found.units is not None
    assert found.positives is not None
    assert found.units.tolist() == [0, 1, 2, 3]
    assert found.positives.tolist() == [2] * 4
    expected = average_precision_score(match.numpy(), scores.numpy())
    assert float(found.metrics["ap"].mean()) == pytest.approx(expected)
    assert float(precision_at_positives(scores, match).mean()) == pytest.approx(expected)


def test_influences_are_those_of_the_ranking_without_a_user() -> None:
    users = torch.tensor([0, 0, 1, 1, 2, 2])
    pairs = torch.tensor([[0, 1], [0, 2], [2, 3], [2, 4], [4, 5], [4, 0]])
    scores = torch.tensor([6.0, 5, 4, 3, 2, 1])  # of matching and other pairs in turn
    view = History(**plain_view(6).common() | {"pairs": pairs}, sent_in=torch.zeros(6).long())
    found = MatchingEstimate(scores=scores).score(view, {"user": users, "known_user": users[:0]})
    assert found.metrics["ap"].tolist() == pytest.approx([1, 2 / 3, 3 / 5])
    mean = (1 + 2 / 3 + 3 / 5) / 3
    # Without user 0 the order is right, wrong, right; without 1 right, right, wrong; without 2 right, wrong, right.
    expected = [3 * mean - 2 * without for without in ((1 + 2 / 3) / 2, 1, (1 + 2 / 3) / 2)]
    assert found.influences["ap"].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("each", [1, 3, 50])
def test_pairs_match_as_often_as_not_and_none_is_asked_twice(each: int) -> None:
    generator = generator_for(0, "pairs", each)
    truth = torch.randint(5, (60,), generator=generator)
    first, second = torch.arange(40), torch.arange(20, 60)
    pairs = draw_pairs(first, second, truth, each=each, generator=generator)
    match = truth[pairs[:, 0]] == truth[pairs[:, 1]]
    assert float(match.double().mean()) == 0.5
    assert len(torch.unique(pairs, dim=0)) == len(pairs)
    assert bool((pairs[:, 0] != pairs[:, 1]).all())
    assert bool(torch.isin(pairs[:, 1], second).all())
    # The order of the question tells nothing: matching pairs do not come first.
    assert 0.2 < float(match[: len(match) // 2].double().mean()) < 0.8


@pytest.mark.parametrize("users", [2, 5, 8])
@pytest.mark.parametrize("apart", [True, False], ids=["known partners", "anonymous partners"])
def test_the_users_of_a_messages_partners_do_not_give_its_own_away(users: int, apart: bool) -> None:
    generator = generator_for(0, "partners", users)
    truth = torch.randint(users, (30 * users,), generator=generator)
    everything = torch.arange(len(truth))
    first, second = (everything[::2], everything[1::2]) if apart else (everything, everything)
    pairs = draw_pairs(first, second, truth, each=4, generator=generator)
    own, partner = truth[pairs[:, 0]], truth[pairs[:, 1]]
    match = own == partner
    # An attack that looks for the partner who comes up most, in one message or in all messages of one sender.
    for sender in (pairs[:, 0], own):
        asked = torch.stack([sender, partner], dim=1)
        _, place, counts = torch.unique(asked, dim=0, return_inverse=True, return_counts=True)
        per_pair = counts[place].double()
        assert float(per_pair[match].mean()) == pytest.approx(float(per_pair[~match].mean()))
    # Nor does who is asked about together: both users of a couple have the same partners.
    partners = {int(user): frozenset(partner[own == user].tolist()) for user in torch.unique(own)}
    alike = [user for user, seen in partners.items() if any(partners[other] == seen for other in seen - {user})]
    assert len(alike) == users - (3 if users % 2 else 0)
