"""Decaf's decomposition is bounded least squares on the classes that are present."""

import torch
from scipy.optimize import lsq_linear

from attacks.composition.decaf import decompose
from protocol.seeding import generator_for


def test_decomposition_is_bounded_least_squares_on_the_present_classes() -> None:
    generator = generator_for(0, "decomposition")
    bases = torch.randn(5, 30, generator=generator, dtype=torch.float64)
    united = torch.randn(4, 30, generator=generator, dtype=torch.float64)
    target = torch.randn(4, 30, generator=generator, dtype=torch.float64) + 2 * bases[:4]
    present = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 1, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 0]]).bool()
    found = decompose(target, bases, united, present, solver="exact")
    for row, chosen in enumerate(present):
        matrix = torch.cat([bases[chosen], united[row : row + 1]]).T.numpy()
        factors = torch.from_numpy(lsq_linear(matrix, target[row].numpy(), bounds=(0, torch.inf), tol=1e-14).x)
        shares = torch.zeros(5, dtype=torch.float64)
        shares[chosen] = factors[:-1] + factors[-1] / int(chosen.sum())
        torch.testing.assert_close(found[row], shares / shares.sum(), atol=1e-6, rtol=1e-5)


def test_many_steps_of_the_early_stop_reach_the_exact_solution_and_few_stay_nearer_to_equal_shares() -> None:
    generator = generator_for(1, "decomposition")
    bases = torch.randn(4, 40, generator=generator, dtype=torch.float64)
    true = torch.tensor([[0.7, 0.1, 0.1, 0.1]], dtype=torch.float64)
    present = torch.ones(1, 4, dtype=torch.bool)
    exact = decompose(true @ bases, bases, None, present, solver="exact")
    torch.testing.assert_close(exact, true)
    stopped = decompose(true @ bases, bases, None, present, solver="early-stopped", steps=2000)
    torch.testing.assert_close(stopped, true, atol=1e-6, rtol=0)
    few = decompose(true @ bases, bases, None, present, solver="early-stopped", steps=1)
    assert 0.25 < float(few[0, 0]) < 0.7


def test_a_change_that_no_basis_explains_gives_equal_shares() -> None:
    bases = torch.eye(3, dtype=torch.float64)
    target = -torch.ones(1, 3, dtype=torch.float64)
    found = decompose(target, bases, None, torch.tensor([[True, False, True]]), solver="exact")
    torch.testing.assert_close(found, torch.tensor([[0.5, 0.0, 0.5]], dtype=torch.float64))
