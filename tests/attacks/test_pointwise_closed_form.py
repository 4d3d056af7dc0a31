"""RAIFLE's theorem 1: the attack on a squared loss is convex, and its optimum unique where the rank condition holds."""

import pytest
import torch

from attacks.interactions.pointwise_closed_form import closed_form, is_identifiable


def client(items: int, parameters: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Jacobian, outputs, interactions and gradient of three clients of a linear model, by autograd."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(3, items, parameters, generator=generator, dtype=torch.float64)
    theta = torch.randn(3, parameters, generator=generator, dtype=torch.float64).requires_grad_()
    clicks = (torch.rand(3, items, generator=generator) < 0.5).double()
    outputs = (features @ theta[..., None]).squeeze(-1)
    (gradient,) = torch.autograd.grad((clicks - outputs).square().sum(), theta)
    return features.transpose(1, 2), outputs.detach(), clicks, gradient


def attack_loss(
    jacobian: torch.Tensor, outputs: torch.Tensor, gradient: torch.Tensor, clicks: torch.Tensor
) -> torch.Tensor:
    simulated = -2 * (jacobian @ (clicks - outputs)[..., None]).squeeze(-1)
    return (gradient - simulated).square().sum()


def test_finds_the_interactions_where_the_rank_condition_holds() -> None:
    jacobian, outputs, clicks, gradient = client(items=6, parameters=9)
    assert bool(is_identifiable(jacobian).all())
    torch.testing.assert_close(closed_form(jacobian, outputs, gradient), clicks)


def test_more_items_than_parameters_leave_many_answers() -> None:
    jacobian, outputs, clicks, gradient = client(items=9, parameters=6)
    assert not bool(is_identifiable(jacobian).any())
    found = closed_form(jacobian, outputs, gradient)
    assert float((found - clicks).abs().max()) > 0.1
    assert float(attack_loss(jacobian, outputs, gradient, found)) < 1e-18


@pytest.mark.parametrize(("items", "parameters"), [(6, 9), (9, 6)])
def test_the_hessian_is_positive_and_definite_only_where_the_answer_is_unique(items: int, parameters: int) -> None:
    jacobian, outputs, clicks, gradient = client(items, parameters)
    rows = torch.func.hessian(lambda point: attack_loss(jacobian[:1], outputs[:1], gradient[:1], point))(clicks[:1])
    hessian = rows.reshape(items, items)
    smallest = float(torch.linalg.eigvalsh(hessian).min())
    assert smallest > -1e-9
    assert (smallest > 1e-6) == bool(is_identifiable(jacobian)[0])
