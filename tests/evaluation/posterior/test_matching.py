"""Matching of clients with their updates: never better than epsilon allows, for any dependence of the answers."""

import math

import pytest
import torch

from fedleak.evaluation.posterior.matching import matched


def test_exact_updates_are_all_matched_and_equal_answers_none() -> None:
    groups = torch.zeros(8)
    assert matched(torch.eye(8, dtype=torch.float64), groups).right.tolist() == [1.0] * 8
    assert matched(torch.ones(8, 8, dtype=torch.float64), groups).right.tolist() == [0.0] * 8


def test_a_client_alone_in_its_group_is_compared_with_nobody() -> None:
    matches = matched(torch.eye(3, dtype=torch.float64), torch.tensor([1, 1, 2]))
    assert matches.right[:2].tolist() == [1.0, 1.0]
    assert math.isnan(float(matches.right[2]))
    assert math.isnan(float(matches.bound(torch.ones(3))[2]))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("clients", [2, 6, 20])
def test_randomised_response_reaches_at_most_the_bound(epsilon: float, clients: int) -> None:
    """Each client answers which of m things it has, rightly with the largest probability that epsilon allows."""
    generator = torch.Generator().manual_seed(0)
    right = math.exp(epsilon) / (math.exp(epsilon) + clients - 1)
    trials = []
    for _ in range(400):
        other = torch.randint(1, clients, (clients,), generator=generator)
        own = torch.arange(clients)
        sent = torch.where(torch.rand(clients, generator=generator) < right, own, (own + other) % clients)
        matches = matched(torch.eye(clients, dtype=torch.float64)[sent], torch.zeros(clients))
        trials.append(float(matches.right.mean()))
        allowed = float(matches.bound(torch.full((clients,), epsilon))[0])
    assert allowed == pytest.approx(right)
    error = 4 * math.sqrt(right * (1 - right) / (400 * clients))
    assert sum(trials) / len(trials) == pytest.approx(right, abs=error)
