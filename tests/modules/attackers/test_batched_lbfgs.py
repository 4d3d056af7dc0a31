"""Batched L-BFGS takes the steps of torch's L-BFGS, for every problem by itself."""

import pytest
import torch
from torch import Tensor

from fedleak.modules.attackers.batched_lbfgs import batched_lbfgs


def rosenbrock(point: Tensor, numbers: Tensor) -> Tensor:
    """Valleys that bend more for higher numbers."""
    bends = 1 + 10 * numbers[:, None]
    return (bends * (point[:, 1:] - point[:, :-1].square()).square() + (1 - point[:, :-1]).square()).sum(1)


def objective(point: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        leaf = point.detach().requires_grad_()
        losses = rosenbrock(leaf, numbers)
        (gradient,) = torch.autograd.grad(losses.sum(), leaf)
    return losses.detach(), gradient


@pytest.mark.parametrize(("max_iter", "learning_rate"), [(5, 1.0), (12, 0.1), (100, 0.1), (400, 1.0)])
def test_every_problem_takes_torchs_steps(max_iter: int, learning_rate: float) -> None:
    start = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
    found, losses = batched_lbfgs(objective, start, max_iter=max_iter, learning_rate=learning_rate)
    for number in range(len(start)):
        leaf = torch.nn.Parameter(start[number].clone())
        own = torch.optim.LBFGS([leaf], lr=learning_rate, max_iter=max_iter, line_search_fn="strong_wolfe")

        def closure(leaf: Tensor = leaf, number: int = number) -> Tensor:
            leaf.grad = None
            loss = rosenbrock(leaf[None], torch.tensor([number]))[0]
            torch.autograd.backward(loss)
            return loss

        own.step(closure)  # type: ignore[no-untyped-call]
        torch.testing.assert_close(found[number], leaf.detach(), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(losses[number], rosenbrock(leaf.detach()[None], torch.tensor([number]))[0])


def test_a_problem_is_solved_the_same_alone() -> None:
    start = torch.randn(3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    together, _ = batched_lbfgs(objective, start, max_iter=20)
    for number in range(3):

        def own(point: torch.Tensor, _: torch.Tensor, number: int = number) -> tuple[torch.Tensor, torch.Tensor]:
            return objective(point, torch.tensor([number]))

        alone, _ = batched_lbfgs(own, start[number][None], max_iter=20)
        torch.testing.assert_close(alone[0], together[number])
