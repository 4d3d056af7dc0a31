"""The written gradient of the collaborative-filtering loss is autograd's."""

import torch

from client.engine.fast.memory import BufferPool
from client.engine.local_hyperparameters import LocalTraining
from client.engine.task import POSITION
from client.fncf import FNCFAlgorithm
from client.recommendation import USER_EMBEDDING
from modules.learners.fncf import FNCF
from protocol.view import ITEM_EMBEDDING


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
