"""Links between rounds: the score against a slow reference and by hand, which messages are compared, the baseline."""

import itertools

import pytest
import torch

from fedleak.attacks.linkability.links import MOST_MESSAGES, LinkCounts, LinkEstimate, compared_messages
from fedleak.core.errors import ViewError
from fedleak.core.history import History
from fedleak.core.seeding import generator_for
from tests.attacks.runs import plain_view, run


def view(rounds: list[int], counts: list[int] | None = None) -> History:
    victims = torch.tensor(counts or [1] * len(rounds))
    return History(**plain_view(len(rounds), example_counts=victims).common(), sent_in=torch.tensor(rounds))


def auc_of(client: int, scores: torch.Tensor, clients: list[int], rounds: list[int]) -> float:
    found = []
    for i, j, k in itertools.product(range(len(clients)), repeat=3):
        linked = clients[i] == clients[j] == client and rounds[i] != rounds[j]
        if linked and clients[k] != client and rounds[k] != rounds[i]:
            found.append(float(scores[i, j] > scores[i, k]) + float(scores[i, j] == scores[i, k]) / 2)
    return sum(found) / len(found)


def test_the_auc_of_each_client_is_that_of_a_loop_over_all_triples() -> None:
    generator = generator_for(0, "links")
    clients, rounds = [7, 3, 9, 3, 7, 9, 5, 7, 3], [0, 0, 0, 1, 1, 1, 1, 2, 2]
    scores = torch.randint(4, (9, 9), generator=generator).double()
    scores = scores + scores.T
    estimate = LinkEstimate(messages=torch.arange(9), scores=scores)
    found = estimate.score(view(rounds), {"clients": torch.tensor(clients)})
    assert found.units is not None
    assert found.units.tolist() == [3, 7, 9]
    expected = [auc_of(client, scores, clients, rounds) for client in (3, 7, 9)]
    assert found.metrics["auc"].tolist() == pytest.approx(expected)
    assert float(found.influences["auc"].isfinite().all()) == 1


def test_a_link_that_is_above_all_others_is_certain_and_a_tie_is_a_guess() -> None:
    rounds, truth = [0, 0, 1, 1], {"clients": torch.tensor([1, 2, 2, 1])}
    scores = torch.tensor([[0.0, 9, 0, 1], [9, 0, 1, 0], [0, 1, 0, 9], [1, 0, 9, 0]])
    certain = LinkEstimate(messages=torch.arange(4), scores=scores).score(view(rounds), truth)
    guess = LinkEstimate(messages=torch.arange(4), scores=torch.zeros(4, 4)).score(view(rounds), truth)
    assert certain.metrics["auc"].tolist() == [1, 1]
    assert guess.metrics["auc"].tolist() == [0.5, 0.5]


def test_two_clients_have_no_jackknife() -> None:
    """The AUC without one of two clients is of few triples, or none, so the influences are the AUCs themselves."""
    clients, rounds = [0, 1, 0, 1, 2], [0, 0, 1, 1, 1]
    scores = torch.tensor([[0.0, 9, 2, 1, 3], [9, 0, 1, 5, 4], [2, 1, 0, 9, 9], [1, 5, 9, 0, 9], [3, 4, 9, 9, 0]])
    estimate = LinkEstimate(messages=torch.arange(5), scores=scores)
    found = estimate.score(view(rounds), {"clients": torch.tensor(clients)})
    expected = [auc_of(client, scores, clients, rounds) for client in (0, 1)]
    assert len(set(expected)) == 2
    assert found.influences["auc"].tolist() == pytest.approx(expected)


def test_clients_that_each_sent_once_cannot_be_scored() -> None:
    estimate = LinkEstimate(messages=torch.arange(4), scores=torch.zeros(4, 4))
    with pytest.raises(ViewError, match="client"):
        estimate.score(view([0, 0, 1, 1]), {"clients": torch.arange(4)})


def test_the_first_rounds_that_fit_are_compared_and_two_at_least() -> None:
    many = view([number for number in range(9) for _ in range(100)])
    chosen = compared_messages(many, generator=generator_for(0, "messages"))
    assert torch.bincount(many.sent_in[chosen]).tolist() == [100] * 5
    large = view([0] * 400 + [1] * 400 + [2] * 400)
    chosen = compared_messages(large, generator=generator_for(0, "messages"))
    assert torch.bincount(large.sent_in[chosen]).tolist() == [MOST_MESSAGES // 2] * 2
    with pytest.raises(ViewError, match="rounds"):
        compared_messages(view([3, 3]), generator=generator_for(0, "messages"))


def test_example_counts_link_clients_of_different_sizes() -> None:
    seen = view([0, 0, 0, 1, 1, 1], [10, 20, 30, 30, 10, 20])
    estimate = run(LinkCounts(), seen, LinkEstimate)
    assert estimate.score(seen, {"clients": torch.tensor([1, 2, 3, 3, 1, 2])}).metrics["auc"].tolist() == [1, 1, 1]
