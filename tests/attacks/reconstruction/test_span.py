"""Distances from an estimated row space follow the noise."""

import pytest
import torch

from fedleak.attacks.reconstruction.span import span_of
from fedleak.core.seeding import generator_for


def change(rank: int, noise: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Change ``(80, 30)`` of a rank, with noise, and the inputs that span it."""
    generator = generator_for(0, "span")
    inputs = torch.randn(rank, 30, generator=generator, dtype=torch.float64)
    left = torch.randn(80, rank, generator=generator, dtype=torch.float64)
    return left @ inputs + noise * torch.randn(80, 30, generator=generator, dtype=torch.float64), inputs


@pytest.mark.parametrize("noise", [1e-9, 1e-3])
def test_inputs_of_the_layer_lie_in_the_span_and_others_do_not(noise: float) -> None:
    values, inputs = change(20, noise)
    span, zero = span_of(values, noise), torch.zeros(1, 30, dtype=torch.float64)
    assert (span.rank, span.free) == (20, 10)
    assert float(span.excess(inputs, zero, missed=1e-6).max()) < 1
    others = torch.randn(200, 30, generator=generator_for(1, "others"), dtype=torch.float64)
    assert float(span.excess(others, zero, missed=1e-6).min()) > 1


def test_the_distance_of_inputs_has_the_predicted_size() -> None:
    noise = 1e-3
    values, inputs = change(20, noise)
    span = span_of(values, noise)
    along = inputs @ span.basis.T
    squares = (inputs - along @ span.basis).square().sum(1)
    expected = noise**2 * span.free * (along / span.values).square().sum(1)
    assert float((squares / expected).mean()) == pytest.approx(1, rel=0.2)


def test_a_sum_of_parts_is_as_far_as_its_parts_together() -> None:
    values, inputs = change(6, 1e-6)
    span = span_of(values, 1e-6)
    left, right = inputs[:3] / 2, inputs[3:]
    pairs = (left[:, None] + right).flatten(0, 1)
    direct = span.excess(pairs, torch.zeros(1, 30, dtype=torch.float64), missed=1e-6).reshape(3, 3)
    torch.testing.assert_close(span.excess(left, right, missed=1e-6), direct, rtol=1e-4, atol=1e-6)


def test_random_directions_are_accepted_as_often_as_predicted() -> None:
    values, _ = change(20, 1e-6)
    span = span_of(values, 1e-6)
    others = torch.randn(20_000, 30, generator=generator_for(2, "directions"), dtype=torch.float64)
    outside = (others - others @ span.basis.T @ span.basis).norm(dim=1) / others.norm(dim=1)
    for allowed in (0.4, 0.6):
        assert float((outside < allowed).double().mean()) == pytest.approx(span.false_acceptance(allowed), abs=0.01)


def test_noise_alone_has_no_rank() -> None:
    noise = torch.randn(80, 30, generator=generator_for(3, "noise"), dtype=torch.float64)
    assert span_of(noise, 1.0).rank == 0
    assert span_of(noise, 1.0).false_acceptance(0.5) == 1
