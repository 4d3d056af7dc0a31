"""Ridge regression of weighted rows is that of the normal equations, with one row left out."""

import torch

from attacks.composition.decaf_match import STRENGTHS, ridge
from protocol.seeding import generator_for


def test_ridge_is_weighted_ridge_with_one_left_out() -> None:
    generator = generator_for(0, "ridge")
    features = torch.randn(12, 4, generator=generator, dtype=torch.float64)
    targets = torch.randn(12, 3, generator=generator, dtype=torch.float64)
    weights = torch.rand(12, generator=generator, dtype=torch.float64) + 0.1
    query = torch.randn(4, generator=generator, dtype=torch.float64)
    found = ridge((features @ features.T)[None], targets[None], weights[None], (features @ query)[None])
    centre_x = (weights[:, None] * features).sum(0) / weights.sum()
    centre_y = (weights[:, None] * targets).sum(0) / weights.sum()
    x, y = features - centre_x, targets - centre_y
    unit = float((weights * (x**2).sum(1)).mean())
    constant = torch.full((12, 1), (10 * unit) ** 0.5, dtype=torch.float64)
    wide = torch.cat([x, constant], dim=1)
    best: tuple[float, float, torch.Tensor] | None = None
    for strength in STRENGTHS:
        left = torch.stack([_primal(wide, y, weights, strength * unit, row) for row in range(12)])
        loss = float((weights[:, None] * (y - left) ** 2).sum())
        if best is None or loss < best[0]:
            best = loss, strength, y - left
    assert best is not None
    root = weights.sqrt()[:, None]
    solution = torch.linalg.solve((root * x).T @ (root * x) + best[1] * unit * torch.eye(4), (root * x).T @ (root * y))
    torch.testing.assert_close(found.value[0], centre_y + (query - centre_x) @ solution)
    torch.testing.assert_close(found.error[0], ((weights[:, None] * best[2] ** 2).sum(0) / weights.sum()).sqrt())


def _primal(x: torch.Tensor, y: torch.Tensor, weights: torch.Tensor, strength: float, left_out: int) -> torch.Tensor:
    kept = torch.arange(len(x)) != left_out
    root = weights[kept].sqrt()[:, None]
    inside, right = root * x[kept], root * y[kept]
    ridge_matrix = inside.T @ inside + strength * torch.eye(x.shape[1], dtype=torch.float64)
    solution: torch.Tensor = torch.linalg.solve(ridge_matrix, inside.T @ right)
    return x[left_out] @ solution
