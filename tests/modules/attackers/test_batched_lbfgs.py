"""L-BFGS on a batch leaves out the problems that are solved, and finds what it finds of each alone."""

import torch
from torch import Tensor

from modules.attackers.batched_lbfgs import Objective, batched_lbfgs

SCALE = torch.tensor([[1.0, 3.0], [1e-3, 1e-3], [5.0, 0.2]])
CENTRE = torch.tensor([[1.0, -2.0], [0.0, 0.0], [0.0, 0.5]])


def test_solved_problems_are_left_out() -> None:
    evaluated = []

    def of(rows: Tensor) -> Objective:
        def objective(points: Tensor) -> tuple[Tensor, Tensor]:
            evaluated.append(rows.tolist())
            gap = points - CENTRE[rows]
            return (SCALE[rows] * gap**4).sum(1), 4 * SCALE[rows] * gap**3

        return objective

    every = torch.arange(3)
    start = torch.zeros(3, 2)  # the solution of the second problem
    together, losses = batched_lbfgs(of(every), start, max_iter=40, tolerance=1e-6, of=of)
    assert [0, 2] in evaluated
    assert sum(1 in rows for rows in evaluated) < 15
    assert float(losses.max()) < 1e-3
    for row in every:
        alone, _ = batched_lbfgs(of(row[None]), start[row][None], max_iter=40, tolerance=1e-6)
        torch.testing.assert_close(alone[0], together[row], atol=1e-4, rtol=0)
