"""Decaf's decomposition is bounded least squares on the classes that are present."""

import pytest
import torch
from scipy.optimize import lsq_linear

from fedleak.attacks.composition.decaf import (
    decompose,
    published_present,
    published_rule,
    with_largest_class_if_empty,
)
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.last_layer import layer_change
from fedleak.core.seeding import generator_for
from tests.composition_toys import SGD, learner, views


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


def test_a_calibrator_counts_whole_or_divided() -> None:
    bases = torch.eye(3, 4, dtype=torch.float64)
    united = torch.tensor([[0.0, 0, 0, 1]], dtype=torch.float64)
    target = torch.tensor([[1.0, 0, 0, 3]], dtype=torch.float64)
    everything = torch.ones(1, 3, dtype=torch.bool)
    divided = decompose(target, bases, united, everything, solver="exact")
    torch.testing.assert_close(divided, torch.tensor([[2.0, 1, 1]], dtype=torch.float64) / 4)
    whole = decompose(target, bases, united, everything, solver="exact", calibrator_share="whole")
    torch.testing.assert_close(whole, torch.tensor([[4.0, 3, 3]], dtype=torch.float64) / 10)


def test_a_threshold_is_for_the_change_divided_by_the_learning_rate() -> None:
    (view,), _ = views()
    weight = layer_change(view).weight
    entry = float(weight.amax(2).median())
    for factor, kept in ((0.99, True), (1.01, False)):
        found = published_present(view, "published", factor * entry / SGD.learning_rate)
        assert torch.equal(found, with_largest_class_if_empty(weight.amax(2) > factor * entry, weight))
        assert bool(found.flatten()[weight.amax(2).flatten() == entry].all()) is kept


@pytest.mark.parametrize(
    "local",
    [
        LocalTraining(optimizer="sgd", learning_rate=0.05, batch_size=20),
        LocalTraining(optimizer="sgd", learning_rate=0.05, momentum=0.9, batch_size=20),
        LocalTraining(optimizer="adadelta", learning_rate=1.0, eps=1e-6, batch_size=20),
        LocalTraining(optimizer="adam", learning_rate=0.01, batch_size=20),
    ],
    ids=lambda local: f"{local.optimizer}-{local.momentum}",
)
def test_no_row_of_a_null_class_grows_anywhere_without_weight_decay(local: LocalTraining) -> None:
    """Section III-D's proof, as a property: 27 null classes of ten clients, rounding excepted."""
    (view,), true = views(local)
    weight = layer_change(view).weight
    null = true == 0
    assert int(null.sum()) == 27
    assert float(weight[null].max()) <= 1e-8
    assert not bool(published_rule(weight)[null].any())


def test_weight_decay_breaks_the_rule() -> None:
    local = LocalTraining(optimizer="sgd", learning_rate=0.1, momentum=0.5, weight_decay=0.01, batch_size=20)
    (view,), true = views(local)
    null = true == 0
    assert float(published_rule(layer_change(view).weight)[null].double().mean()) > 0.5


def test_decay_is_what_steps_without_a_gradient_do() -> None:
    local = LocalTraining(optimizer="sgd", learning_rate=0.1, momentum=0.9, weight_decay=0.05, batch_size=8, epochs=2)
    start = torch.tensor([3.0, -1.0])
    value = start.clone().requires_grad_()
    optimizer = torch.optim.SGD([value], lr=0.1, momentum=0.9, weight_decay=0.05)
    for _ in range(2 * 3):  # 20 examples in batches of 8, twice
        value.grad = torch.zeros(2)
        optimizer.step()
    change = learner(local).decay_change({"w": start}, torch.tensor([20]))["w"]
    torch.testing.assert_close(change[0], value.detach() - start)


def test_no_decay_is_reported_if_the_optimizer_does_not_separate_it() -> None:
    local = LocalTraining(optimizer="adam", weight_decay=0.05)
    assert not bool(learner(local).decay_change({"w": torch.ones(2)}, torch.tensor([20]))["w"].any())
