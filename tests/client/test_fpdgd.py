"""Pair weights equal a literal loop over pairs and swapped rankings."""

import math

import torch

from fedleak.client.fpdgd import click_coefficients, pair_weights, position_bias_ratio


def plackett_luce(scores: list[float]) -> float:
    chance = 1.0
    for position in range(len(scores)):
        chance *= math.exp(scores[position]) / sum(math.exp(s) for s in scores[position:])
    return chance


def test_ratio_equals_swapped_rankings() -> None:
    scores = torch.randn(7, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
    mask = torch.tensor([True] * 5 + [False] * 2)
    ratio = position_bias_ratio(scores, mask)
    for i in range(5):
        for j in range(5):
            ranked = scores[:5].tolist()
            swapped = list(ranked)
            swapped[i], swapped[j] = ranked[j], ranked[i]
            both = plackett_luce(swapped) / (plackett_luce(ranked) + plackett_luce(swapped))
            assert math.isclose(float(ratio[i, j]), both, rel_tol=1e-9)


def test_coefficients_equal_a_loop_over_pairs() -> None:
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    mask = torch.arange(6) < torch.tensor([6, 4, 2])[:, None]
    clicks = (torch.rand(3, 6, generator=generator) < 0.5).double() * mask
    weights = pair_weights(scores, mask)
    ratio = position_bias_ratio(scores, mask)
    expected = torch.zeros(3, 6, dtype=torch.float64)
    for row in range(3):
        for i in range(6):
            for j in range(6):
                if mask[row, i] and mask[row, j] and clicks[row, i] and not clicks[row, j]:
                    a, b = float(scores[row, i]), float(scores[row, j])
                    weight = float(ratio[row, i, j]) * math.exp(a + b) / (math.exp(a) + math.exp(b)) ** 2
                    expected[row, i] += weight
                    expected[row, j] -= weight
    torch.testing.assert_close(click_coefficients(weights, clicks), expected)


def test_equal_scores_weigh_an_eighth_whatever_the_ranking() -> None:
    weights = pair_weights(torch.full((4,), 3.7), torch.ones(4).bool())
    torch.testing.assert_close(weights, (torch.ones(4, 4) - torch.eye(4)) / 8)


def test_far_scores_stay_finite() -> None:
    weights = pair_weights(torch.tensor([200.0, -200.0, 0.0]), torch.ones(3).bool())
    assert bool(torch.isfinite(weights).all())
