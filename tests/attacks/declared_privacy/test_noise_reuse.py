"""Noise that is used twice is found, between messages, rounds and parameters; independent noise is not."""

import pytest
import torch

from fedleak.attacks.declared_privacy.noise_reuse import ComparedMessages, SeenNoise, compared, compared_all


def messages(numbers: torch.Tensor) -> ComparedMessages:
    return ComparedMessages.as_declared(numbers, torch.arange(len(numbers)))


def noise(messages: int, numbers: int, seed: int) -> torch.Tensor:
    return torch.randn(messages, numbers, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("bound", [0.5, 5.0, 500.0])
def test_independent_noise_under_like_updates_is_rarely_suspected(bound: float) -> None:
    update = noise(1, 640, 9)
    update = bound * update / update.norm()
    x = noise(40, 640, 0) + update
    sent = messages(x)
    found = compared_all(sent, sent, bound=bound)
    assert found.total in (780, 1560)
    assert len(found.p) < 30  # 7.8 or 15.6 are expected below 0.01
    assert (found.p > 1e-5).all()
    assert len(compared(sent, messages(noise(40, 640, 1)), bound=bound).p) < 5


@pytest.mark.parametrize("bound", [0.5, 5.0])
def test_shared_noise_is_found(bound: float) -> None:
    shared, update = noise(1, 640, 0), noise(6, 640, 1)
    x = shared + bound * update / update.norm(dim=1, keepdim=True)
    sent = messages(x)
    found = compared_all(sent, sent, bound=bound)
    assert len(found.p) == found.total == 15
    assert (found.p < 1e-12).all()
    assert (found.messages[:, 0] < found.messages[:, 1]).all()


def test_shared_noise_under_large_updates_of_a_few_rows_is_found() -> None:
    x = noise(1, 6400, 0).repeat(4, 1)
    for client in range(4):
        x[client, 320 * client : 320 * (client + 1)] += 1000
    sent = messages(x)
    found = compared_all(sent, sent, bound=20_000.0)
    assert (found.p < 1e-12).sum() == 6


def test_rounds_are_compared_with_the_last_one_and_with_those_of_the_same_client() -> None:
    seen = SeenNoise(12)
    rounds = [noise(3, 640, seed) for seed in range(4)]
    rounds[3][0] = rounds[0][0]  # the same client, three rounds ago
    rounds[3][1] = rounds[2][2]  # another client, one round ago
    rounds[3][2] = rounds[0][1]  # another client, long ago: not compared
    found = []
    for number, x in enumerate(rounds):
        names = 3 * number + torch.arange(3)
        for pairs in seen.add(x, torch.arange(3), names, round_number=number, bound=1.0):
            found += [tuple(both) for both, p in zip(pairs.messages.tolist(), pairs.p, strict=True) if p < 1e-9]
    assert sorted(found) == [(9, 0), (10, 8)]


def test_a_single_message_is_compared_with_none() -> None:
    alone = messages(noise(1, 1200, seed=0))
    assert compared_all(alone, alone, bound=30.0).total == 0


def p_values_of_a_round(x: torch.Tensor, bound: float) -> list[float]:
    clients = torch.arange(len(x))
    comparisons = SeenNoise(len(x)).add(x, clients, clients, round_number=0, bound=bound)
    return [float(p) for pairs in comparisons for p in pairs.p]


@pytest.mark.parametrize("bound", [1e3, 1e4, 1e6])
@pytest.mark.parametrize("changed", [1, 10, 600])
def test_an_update_of_the_same_few_numbers_is_no_noise_that_is_used_twice(bound: float, changed: int) -> None:
    """The middle block of honest noise is half the time below its expectation; the update stays as large as it is."""
    for seed in range(4):
        update = torch.zeros(640)
        update[:changed] = bound / changed**0.5
        assert min(p_values_of_a_round(noise(12, 640, seed) + update, bound), default=1) > 1e-5


@pytest.mark.parametrize("scale", [0.5, 0.02])
@pytest.mark.parametrize("bound", [0.5, 1e4])
def test_small_noise_is_no_noise_that_is_used_twice(scale: float, bound: float) -> None:
    update = torch.zeros(640)
    update[:100] = bound / 10
    for seed in range(4):
        x = scale * noise(12, 640, seed)
        assert min(p_values_of_a_round(x + update, bound), default=1) > 1e-5
        x[3] = x[8]
        assert min(p_values_of_a_round(x + update, bound)) < 1e-12
