"""Estimates are checked and scored: average precision as scikit-learn has it, members and private vectors."""

from collections.abc import Mapping

import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from attacks.deanonymization.estimates import IdentityEstimate, MatchingEstimate
from attacks.estimates import Estimate, EstimateError, InteractionEstimate, MembershipEstimate, VectorEstimate
from attacks.scoring import average_precision, precision_at_positives, random_average_precision, top_share
from evaluation.message_selection import draw_pairs
from protocol.errors import InputError
from protocol.history import History
from protocol.seeding import generator_for
from protocol.view import ITEM_EMBEDDING, RoundView
from tests.toys import leaky_view


def scored(estimate: IdentityEstimate, truth: torch.Tensor) -> tuple[list[int], list[int], Mapping[str, torch.Tensor]]:
    """Users, how many messages each has, and their metrics."""
    messages = torch.arange(len(truth))
    view = RoundView(round=0, pseudonyms=messages, example_counts=messages, deltas={}, model={})
    scores = estimate.score(view, {"user": truth})
    assert scores.units is not None
    assert scores.positives is not None
    return scores.units.tolist(), scores.positives.tolist(), scores.metrics


@pytest.mark.parametrize("levels", [2, 7, 10**6])
def test_average_precision_is_scikit_learns_with_and_without_ties(levels: int) -> None:
    generator = generator_for(0, "ap", levels)
    scores = torch.randint(levels, (80, 5), generator=generator).double()
    positive = torch.rand(80, 5, generator=generator) < 0.2
    positive[:, 4] = False
    ours = average_precision(scores, positive)
    for column in range(4):
        expected = average_precision_score(positive[:, column].numpy(), scores[:, column].numpy())
        assert float(ours[column]) == pytest.approx(expected)
    assert bool(ours[4].isnan())


def test_random_average_precision_is_the_mean_over_random_orders() -> None:
    positive = torch.arange(30)[:, None] < torch.tensor([1, 3, 10])
    generator = generator_for(0, "orders")
    draws = [average_precision(torch.rand(30, 3, generator=generator), positive) for _ in range(3000)]
    expected = random_average_precision(positive.sum(0), 30)
    torch.testing.assert_close(torch.stack(draws).mean(0), expected, rtol=0.03, atol=0)
    assert bool((expected > positive.sum(0) / 30).all())


def test_the_first_places_and_ties_about_them() -> None:
    scores = torch.tensor([[0.1, 0.9, 0.5], [0.2, 0.2, 0.2], [0.0, 1.0, 1.0]])
    true = torch.tensor([2, 0, 2])
    assert top_share(scores, true, 1).tolist() == pytest.approx([0, 1 / 3, 1 / 2])
    assert top_share(scores, true, 2).tolist() == pytest.approx([1, 2 / 3, 1])


def test_users_are_scored_over_messages_by_hand() -> None:
    scores = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    estimate = IdentityEstimate(scores=scores, users=torch.tensor([5, 9]))
    users, counts, metrics = scored(estimate, torch.tensor([5, 9, 9, 5]))
    assert users == [5, 9]
    assert counts == [2, 2]
    assert metrics["ap"].tolist() == pytest.approx([(1 + 2 / 3) / 2, (1 + 2 / 3) / 2])
    assert metrics["times-chance"].tolist() == pytest.approx([5 / 3, 5 / 3])
    assert metrics["top1"].tolist() == [1, 0.5]


def test_strangers_count_as_unseen_where_that_is_a_class_and_as_errors_where_not() -> None:
    truth = torch.tensor([0, 7, 8])
    with_class = IdentityEstimate(
        scores=torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.7, 0.3]]), users=torch.tensor([-1, 0])
    )
    users, counts, metrics = scored(with_class, truth)
    assert users == [-1, 0]
    assert counts == [2, 1]
    assert metrics["ap"].tolist() == [1, 1]
    without = IdentityEstimate(scores=torch.tensor([[0.5], [0.6], [0.4]]), users=torch.tensor([0]))
    users, _, metrics = scored(without, truth)
    assert users == [0]
    assert metrics["ap"].tolist() == [0.5]


def test_matching_is_the_average_precision_over_all_pairs_where_users_have_as_many() -> None:
    generator = generator_for(0, "matching")
    truth = torch.arange(12) % 4
    everything = torch.arange(12)
    pairs = draw_pairs(everything[:8], everything[8:], truth, each=1, generator=generator)
    view = History(
        round=0,
        pseudonyms=everything,
        example_counts=everything,
        deltas={},
        model={},
        sent_in=0 * everything,
        pairs=pairs,
    )
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


def test_members_are_scored_by_auc_and_rates() -> None:
    view, _ = leaky_view(8)
    member = torch.tensor([True, False, True, False, False, True, False, False])
    scores = torch.tensor([3.0, 1.0, 2.0, 2.0, 0.0, 5.0, 4.0, -1.0])
    estimate = MembershipEstimate(scores=scores, decisions=scores > 1.5)
    found = estimate.score(view, {"member": member.float()})
    auc, tpr, fpr = (found.metrics[name] for name in ("auc", "tpr", "fpr"))
    assert torch.isclose(auc.nanmean(), torch.tensor(roc_auc_score(member, scores), dtype=torch.float64))
    assert auc.isnan().tolist() == (~member).tolist()
    assert tpr[member].tolist() == [1.0, 1.0, 1.0]
    assert tpr[~member].isnan().all()
    assert float(fpr.nanmean()) == 2 / 5
    assert found.positives is not None
    assert found.positives.tolist() == member.long().tolist()


def test_without_both_kinds_there_is_no_auc() -> None:
    view, _ = leaky_view(3)
    estimate = MembershipEstimate(scores=torch.zeros(3), decisions=torch.zeros(3, dtype=torch.bool))
    for member in (torch.ones(3), torch.zeros(3)):
        assert estimate.score(view, {"member": member}).metrics["auc"].isnan().all()


def view() -> RoundView:
    table = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5], [1.0, 1.0]])
    return RoundView(
        round=0,
        pseudonyms=torch.tensor([7]),
        example_counts=torch.tensor([3]),
        deltas={ITEM_EMBEDDING: torch.zeros(1, 4, 2)},
        model={ITEM_EMBEDDING: table},
        served=torch.tensor([[0, 1, -1, 2]]),
    )


def test_error_and_label_error_by_hand() -> None:
    truth = {"user_vector": torch.tensor([[1.0, -2.0]]), "labels": torch.tensor([[1.0, 1.0, 0.0, 0.0]])}
    # Own signs + - - -; those of the guess + + - +: two of four differ. The labels are + + -: none does.
    found = VectorEstimate(vectors=torch.tensor([[2.0, 1.0]])).score(view(), truth)
    assert {name: value.item() for name, value in found.metrics.items()} == {
        "error": 0.5,
        "label-error": 0.0,
        "cosine": 0.0,
        "flipped": 0.0,
    }
    assert found.items is not None
    assert found.positives is not None
    assert (found.items.item(), found.positives.item()) == (3, 2)
    turned = VectorEstimate(vectors=torch.tensor([[-1.0, 2.0]])).score(view(), truth).metrics
    assert (turned["error"].item(), turned["flipped"].item()) == (1.0, 1.0)
    # A vector of zeros says nothing of any item, and errs on all.
    assert VectorEstimate(vectors=torch.zeros(1, 2)).score(view(), truth).metrics["error"].item() == 1.0


def test_vectors_of_another_shape_or_no_numbers_are_refused() -> None:
    with pytest.raises(EstimateError, match="shape"):
        VectorEstimate(vectors=torch.zeros(2, 2)).check(view())
    with pytest.raises(EstimateError, match="finite"):
        VectorEstimate(vectors=torch.full((1, 2), torch.nan)).check(view())


def test_an_estimate_says_what_is_inferred() -> None:
    with pytest.raises(InputError, match=r"inferred in .*\.Silent"):
        type("Silent", (Estimate,), {"truth": (), "metrics": (), "check": len, "score": len})
    finer = type("Finer", (InteractionEstimate,), {})
    assert finer.inferred == InteractionEstimate.inferred  # type: ignore[attr-defined]
