"""Noise that is used twice is found, between messages, rounds and parameters; independent noise is not."""

import pytest
import torch

from attacks.declared_privacy.noise_reuse import SeenNoise, compared, compared_all

BOTH = torch.arange(40)[:, None].expand(-1, 2)


def noise(messages: int, numbers: int, seed: int) -> torch.Tensor:
    return torch.randn(messages, numbers, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("bound", [0.5, 5.0, 500.0])
def test_independent_noise_under_like_updates_is_rarely_suspected(bound: float) -> None:
    update = noise(1, 640, 9)
    update = bound * update / update.norm()
    x = noise(40, 640, 0) + update
    found = compared_all(x, x, (torch.arange(40), torch.arange(40)), bound=bound)
    assert found.total in (780, 1560)
    assert len(found.p) < 30  # 7.8 or 15.6 are expected below 0.01
    assert (found.p > 1e-5).all()
    assert len(compared(x, noise(40, 640, 1), BOTH, bound=bound).p) < 5


@pytest.mark.parametrize("bound", [0.5, 5.0])
def test_shared_noise_is_found(bound: float) -> None:
    shared, update = noise(1, 640, 0), noise(6, 640, 1)
    x = shared + bound * update / update.norm(dim=1, keepdim=True)
    found = compared_all(x, x, (torch.arange(6), torch.arange(6)), bound=bound)
    assert len(found.p) == found.total == 15
    assert (found.p < 1e-12).all()
    assert (found.messages[:, 0] < found.messages[:, 1]).all()


def test_shared_noise_under_large_updates_of_a_few_rows_is_found() -> None:
    x = noise(1, 6400, 0).repeat(4, 1)
    for client in range(4):
        x[client, 320 * client : 320 * (client + 1)] += 1000
    found = compared_all(x, x, (torch.arange(4), torch.arange(4)), bound=20_000.0)
    assert (found.p < 1e-12).sum() == 6


def test_rounds_are_compared_with_the_last_one_and_with_those_of_the_same_client() -> None:
    seen = SeenNoise(12)
    rounds = [noise(3, 640, seed) for seed in range(4)]
    rounds[3][0] = rounds[0][0]  # the same client, three rounds ago
    rounds[3][1] = rounds[2][2]  # another client, one round ago
    rounds[3][2] = rounds[0][1]  # another client, long ago: not compared
    found = []
    for number, x in enumerate(rounds):
        messages = 3 * number + torch.arange(3)
        for pairs in seen.add(x, torch.arange(3), messages, round_number=number, bound=1.0):
            found += [tuple(both) for both, p in zip(pairs.messages.tolist(), pairs.p, strict=True) if p < 1e-9]
    assert sorted(found) == [(9, 0), (10, 8)]


def test_a_single_message_is_compared_with_none() -> None:
    alone, numbers = noise(1, 1200, seed=0), torch.zeros(1, dtype=torch.int64)
    assert compared_all(alone, alone, (numbers, numbers), bound=30.0).total == 0
