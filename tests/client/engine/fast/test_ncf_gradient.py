"""The written gradient of the collaborative-filtering loss is autograd's."""

import pytest
import torch

from fedleak.client.engine.fast.memory import BufferPool
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.engine.task import POSITION
from fedleak.client.fncf import FNCFAlgorithm
from fedleak.client.recommendation import USER_EMBEDDING
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.modules.learners.fncf import FNCF


def test_written_gradient_is_autograds() -> None:
    generator = torch.Generator().manual_seed(0)
    public = FNCF(num_items=12, num_clients=1, user_dim=4, item_dim=6, hidden=(8, 7, 5)).public_parameters()
    stacked = {name: value.double().expand(3, *value.shape).clone() for name, value in public.items()}
    stacked[USER_EMBEDDING] = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    parameters = {name: value.requires_grad_() for name, value in stacked.items()}
    mask = torch.arange(12) < torch.tensor([12, 9, 0])[:, None]
    examples = {"label": torch.rand(3, 12, generator=generator, dtype=torch.float64)}
    task = FNCFAlgorithm(user_dim=1, local=LocalTraining())
    losses = task.stacked_loss(parameters, examples, mask)
    expected = dict(zip(parameters, torch.autograd.grad(losses.sum(), list(parameters.values())), strict=True))
    with torch.no_grad():
        written = task.fast().stacked(parameters, examples, mask, BufferPool())
    assert written is not None
    torch.testing.assert_close(written[0], losses.detach())
    assert set(written[1]) == set(expected)
    for name, gradient in written[1].items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-9, atol=1e-12)


def test_mini_batches_are_left_to_autograd() -> None:
    nothing = torch.zeros(1, 1)
    gradients = FNCFAlgorithm(user_dim=1, local=LocalTraining()).fast()
    assert gradients.stacked({ITEM_EMBEDDING: nothing}, {POSITION: nothing}, nothing.bool(), BufferPool()) is None


@pytest.mark.parametrize("users_too", [False, True])
def test_simulated_training_has_autograds_derivatives(users_too: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    public = FNCF(num_items=12, num_clients=1, user_dim=4, item_dim=6, hidden=(8, 7)).public_parameters()
    model = {name: value.detach().double() for name, value in public.items()}
    served = torch.arange(12).expand(3, -1).masked_fill(torch.arange(12) >= torch.tensor([12, 9, 1])[:, None], -1)
    labels = torch.rand(3, 12, generator=generator, dtype=torch.float64).requires_grad_()
    users = torch.randn(3, 4, generator=generator, dtype=torch.float64).requires_grad_(users_too)
    asked = [labels, *([users] if users_too else [])]
    found = []
    for fast in (True, False):
        local = LocalTraining(optimizer="adam", learning_rate=0.01, epochs=4, eps_root=1e-8, fast=fast)
        simulated = FNCFAlgorithm(user_dim=4, local=local).simulate(model, served, labels, users, differentiable=True)
        weights = torch.Generator().manual_seed(1)
        total = sum((torch.rand(v.shape, generator=weights) * v).sum() for v in simulated.values())
        assert isinstance(total, torch.Tensor)
        found.append([*simulated.values(), *torch.autograd.grad(total, asked)])
    for written, expected in zip(*found, strict=True):
        torch.testing.assert_close(written, expected, rtol=1e-8, atol=1e-12)
