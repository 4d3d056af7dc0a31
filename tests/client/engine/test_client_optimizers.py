"""The clients' optimizers against torch's classes, on parameters that lie in memory in either way."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedleak.client.engine.client_optimizers import build_optimizer
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.seeding import generator_for

SGD = LocalTraining(learning_rate=0.1)
CASES: list[tuple[LocalTraining, type[torch.optim.Optimizer], tuple[str, ...]]] = [
    (SGD, torch.optim.SGD, ()),
    (replace(SGD, momentum=0.9, weight_decay=0.1), torch.optim.SGD, ("momentum", "weight_decay")),
    (
        LocalTraining(optimizer="adam", learning_rate=0.01, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.1),
        torch.optim.Adam,
        ("betas", "eps", "weight_decay"),
    ),
    (LocalTraining(optimizer="adadelta", learning_rate=1.0, rho=0.8, eps=1e-5), torch.optim.Adadelta, ("rho", "eps")),
]
"""How clients train, torch's class, and its options."""


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(("local", "kind", "names"), CASES)
def test_steps_are_those_of_torchs_classes(
    local: LocalTraining, kind: Any, names: tuple[str, ...], channels_last: bool
) -> None:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    generator = generator_for(0, "test-optimizers")
    start = [torch.randn(4, 3, 2, 2, generator=generator).contiguous(memory_format=layout), torch.randn(5)]
    own, theirs = [value.clone() for value in start], [value.clone() for value in start]
    options = {name: getattr(local, name) for name in names}
    optimizer, reference = build_optimizer(local, own), kind(theirs, lr=local.learning_rate, **options)
    for _ in range(4):
        gradients = [torch.randn(value.shape, generator=generator) for value in start]
        gradients[0] = gradients[0].contiguous(memory_format=layout)
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step(gradients)
        reference.step()
    for mine, other, before in zip(own, theirs, start, strict=True):
        assert not torch.allclose(mine, before, atol=1e-3)
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


def test_a_constant_under_the_root_makes_small_gradients_take_small_steps() -> None:
    parameter, gradient = torch.zeros(1), torch.full((1,), 1e-5)
    build_optimizer(LocalTraining(optimizer="adam", learning_rate=1.0, eps_root=1e-8), [parameter]).step([gradient])
    assert float(parameter) == pytest.approx(-1e-5 / ((1e-10 + 1e-8) ** 0.5 + 1e-8), rel=1e-5)


def test_a_constant_under_the_root_is_added_in_every_step() -> None:
    local = LocalTraining(optimizer="adam", learning_rate=0.01, betas=(0.8, 0.99), eps=1e-6, eps_root=1e-3)
    generator = generator_for(0, "test-optimizers")
    parameter = torch.randn(5, generator=generator)
    expected, first, second = parameter.clone(), torch.zeros(5), torch.zeros(5)
    optimizer = build_optimizer(local, [parameter])
    for step in range(1, 5):
        gradient = torch.randn(5, generator=generator)
        optimizer.step([gradient])
        first, second = 0.8 * first + 0.2 * gradient, 0.99 * second + 0.01 * gradient**2
        root = (second / (1 - 0.99**step) + 1e-3).sqrt()
        expected = expected - 0.01 / (1 - 0.8**step) * first / (root + 1e-6)
    torch.testing.assert_close(parameter, expected, rtol=1e-5, atol=1e-6)


def test_leaves_that_need_gradients_are_stepped_too() -> None:
    parameter: Tensor = torch.ones(3, requires_grad=True)
    build_optimizer(LocalTraining(learning_rate=0.5), [parameter]).step([torch.ones(3)])
    assert parameter.tolist() == [0.5] * 3
