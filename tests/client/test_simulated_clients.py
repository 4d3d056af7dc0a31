"""Simulated clients hold the compositions that they should, and release what clients do."""

import dataclasses

import pytest
import torch

from fedleak.client.auxiliary_images import Auxiliary
from fedleak.client.simulated_clients import (
    as_released,
    draw_examples,
    nearby_compositions,
    random_compositions,
)
from fedleak.core.largest_remainders import largest_remainders
from fedleak.core.release import Release
from fedleak.core.seeding import generator_for
from tests.composition_toys import views


def test_simulated_clients_hold_what_they_should() -> None:
    generator = generator_for(0, "simulation")
    shares = random_compositions(200, 6, generator=generator)
    torch.testing.assert_close(shares.sum(1), torch.ones(200, dtype=torch.float64))
    assert set((shares > 0).sum(1).tolist()) == {1, 2, 3, 4, 5, 6}
    counts = largest_remainders(shares, torch.full((200,), 50))
    assert bool((counts.sum(1) == 50).all())
    assert float((counts / 50 - shares).abs().max()) < 1 / 50
    by_class = torch.arange(24).reshape(6, 4).clone()
    by_class[5, 2:] = -1
    labels = torch.arange(6).repeat_interleave(4)
    known = Auxiliary(torch.zeros(24, 1, 2, 2), labels, by_class)
    examples = draw_examples(known, counts, generator=generator)
    for row in range(0, 200, 20):
        image = examples[row]
        assert torch.equal(labels[image].bincount(minlength=6), counts[row])
        assert not bool(torch.isin(image, torch.tensor([22, 23])).any())  # class 5 has two images


def test_means_over_simulated_clients_vary_by_the_clients_sampling_and_the_auxiliary_sets() -> None:
    generator = generator_for(0, "two levels")
    values = torch.randn(20, generator=generator, dtype=torch.float64)
    known = Auxiliary(torch.zeros(20, 1, 2, 2), torch.zeros(20, dtype=torch.int64), torch.arange(20)[None])
    examples = draw_examples(known, torch.full((6000, 1), 50), generator=generator)
    variance = float(values.var(correction=0))
    # k draws, then n draws of those: s^2 (1/k + 1/n - 1/(kn)).
    expected = variance * (1 / 20 + 1 / 50 - 1 / 1000)
    assert float(values[examples].mean(1).var()) == pytest.approx(expected, rel=0.06)


def test_nearby_compositions_are_compositions_about_the_centre_half_of_them_without_its_rare_classes() -> None:
    centre = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]], dtype=torch.float64)
    found = nearby_compositions(centre, 400, spread=0.04, generator=generator_for(0, "nearby"))
    torch.testing.assert_close(found.sum(2), torch.ones(2, 400, dtype=torch.float64))
    assert float(found.min()) >= 0
    assert not bool(found[0, ::2, 2].any())
    assert float(found[0, 1::2, 2].mean()) > 0.001
    torch.testing.assert_close(found.mean(1), centre, atol=0.015, rtol=0)
    assert float(found[1].std(0).mean()) == pytest.approx(0.04 * (1 / 3 / 0.1 * 2 / 3) ** 0.5, rel=0.2)


def test_released_changes_are_clipped_and_noised_as_the_clients_do() -> None:
    (view,), _ = views()
    release = Release(clip=0.01, noise_scale=0.5, parameters=("output.bias",))
    noisy = dataclasses.replace(view, releases=(release,))
    deltas = {"output.bias": torch.ones(4000, 10), "other": torch.ones(4000, 2)}
    found = as_released(noisy, deltas, generator=generator_for(0, "release"))
    assert float(found["output.bias"].mean()) == pytest.approx(0.01 / 10**0.5, abs=0.01)
    assert float(found["output.bias"].std()) == pytest.approx(0.5, rel=0.02)
    assert torch.equal(found["other"], deltas["other"])
