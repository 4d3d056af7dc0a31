"""Adam's step has the derivative that autograd gives of its formula."""

import pytest
import torch
from torch import Tensor

from fedleak.client.engine.client_optimizers import build_optimizer
from fedleak.client.engine.differentiable_training import by_autograd, full_batches, train_differentiably
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.errors import InputError

ADAM = LocalTraining(optimizer="adam", learning_rate=0.05, epochs=4, eps_root=1e-8)


def trained(labels: Tensor, start: Tensor, local: LocalTraining = ADAM) -> Tensor:
    def loss(current: dict[str, Tensor], given: dict[str, Tensor]) -> Tensor:
        return ((current["a"].sin() - given["labels"]) ** 2).sum() + (current["a"] ** 2 * given["labels"]).sum()

    return train_differentiably({"a": start}, {"labels": labels}, full_batches(by_autograd(loss), local), local)["a"]


@pytest.mark.parametrize("local", [ADAM, LocalTraining(learning_rate=0.05, epochs=4)])
def test_derivatives_equal_finite_differences(local: LocalTraining) -> None:
    generator = torch.Generator().manual_seed(0)
    start, labels = (torch.randn(3, 5, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2))
    assert torch.autograd.gradcheck(lambda given, at: trained(given, at, local), (labels, start), rtol=1e-4)


def test_steps_are_those_of_the_clients_optimizer() -> None:
    generator = torch.Generator().manual_seed(1)
    start, labels = torch.randn(3, 5, generator=generator), torch.randn(3, 5, generator=generator)
    value = start.clone()
    optimizer = build_optimizer(ADAM, [value])
    for _ in range(ADAM.epochs):
        optimizer.step([2 * (value.sin() - labels) * value.cos() + 2 * value * labels])
    torch.testing.assert_close(trained(labels, start).detach(), value)


def test_training_that_cannot_be_differentiated_is_refused() -> None:
    with pytest.raises(InputError, match="full-batch"):
        full_batches(by_autograd(lambda *_: torch.zeros(())), LocalTraining(batch_size=8))
