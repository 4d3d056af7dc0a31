"""The formulas of the composition attacks against slow, literal references and hand calculations."""

import dataclasses

import pytest
import torch
from scipy.optimize import lsq_linear

from attacks.composition.base import Auxiliary, layer_change
from attacks.composition.decaf import decompose
from attacks.composition.null_classes import _best_threshold, calibrate, published_rule, without_decay
from attacks.composition.regression import STRENGTHS, ridge
from attacks.composition.simulation import (
    as_released,
    augmented,
    draw_examples,
    nearby_compositions,
    random_compositions,
    whole_counts,
)
from attacks.metrics import composition_errors, null_class_errors
from modules.engine.local_hyperparameters import LocalTraining
from protocol.seeding import generator_for
from protocol.view import Release
from tests.composition_toys import learner, views


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


def test_weight_decay_breaks_the_rule_and_taking_it_out_mends_it_exactly_for_sgd() -> None:
    local = LocalTraining(optimizer="sgd", learning_rate=0.05, momentum=0.5, weight_decay=0.01, batch_size=20)
    (view,), true = views(local)
    (undecayed,), _ = views(dataclasses.replace(local, weight_decay=0.0))
    null = true == 0
    weight = layer_change(view).weight
    assert float(published_rule(weight)[null].double().mean()) > 0.5
    mended = without_decay(view, weight)
    assert float(mended[null].max()) < 1e-7
    # Present classes are found as without decay: by no means all of them, for the proof has no converse.
    as_without = published_rule(mended, 1e-7) == published_rule(layer_change(undecayed).weight, 1e-7)
    assert float(as_without.double().mean()) > 0.95


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


def test_no_decay_is_claimed_where_it_cannot_be_told_apart() -> None:
    local = LocalTraining(optimizer="adam", weight_decay=0.05)
    assert not bool(learner(local).decay_change({"w": torch.ones(2)}, torch.tensor([20]))["w"].any())


def test_calibration_finds_the_statistic_that_tells() -> None:
    generator = generator_for(0, "calibration")
    present = torch.rand(40, 5, generator=generator) < 0.5
    # Rows differ in their mean, while outliers hide it from the maximum.
    weight = 0.2 * torch.randn(40, 5, 50, generator=generator) + present[..., None]
    weight[..., 0] = 20 * torch.rand(40, 5, generator=generator)
    rule = calibrate(weight, present)
    assert (rule.statistic, rule.errors) == ("mean", 0.0)
    assert torch.equal(rule(weight), present)


def test_calibration_counts_both_kinds_of_error_alike_however_rare_one_is() -> None:
    values = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
    present = torch.tensor([1, 1, 0, 0, 1, 1, 1, 1, 1, 1]).bool()
    # Above 3 two of eight present classes are missed (1/8 in the mean), which beats raising both null ones (1/2).
    threshold, errors = _best_threshold(values, present)
    assert 3 < threshold < 4
    assert errors == pytest.approx(1 / 8)


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


def test_simulated_clients_hold_what_they_should() -> None:
    generator = generator_for(0, "simulation")
    shares = random_compositions(200, 6, generator=generator)
    torch.testing.assert_close(shares.sum(1), torch.ones(200, dtype=torch.float64))
    assert int((shares > 0).sum(1).min()) >= 2
    counts = whole_counts(shares, torch.full((200,), 50))
    assert bool((counts.sum(1) == 50).all())
    assert float((counts / 50 - shares).abs().max()) < 1 / 50
    by_class = torch.arange(24).reshape(6, 4).clone()
    by_class[5, 2:] = -1
    labels = torch.arange(6).repeat_interleave(4)
    known = Auxiliary(torch.zeros(24, 1, 2, 2), labels, by_class)
    examples = draw_examples(known, counts, 3, generator=generator)
    for row in range(0, 200, 20):
        image = examples[row] % 24
        assert torch.equal(labels[image].bincount(minlength=6), counts[row])
        assert not bool(torch.isin(image, torch.tensor([22, 23])).any())  # class 5 has two images
    assert int(examples.max()) < 3 * 24


def test_means_over_simulated_clients_vary_by_the_clients_sampling_and_the_auxiliary_sets() -> None:
    generator = generator_for(0, "two levels")
    values = torch.randn(20, generator=generator, dtype=torch.float64)
    known = Auxiliary(torch.zeros(20, 1, 2, 2), torch.zeros(20, dtype=torch.int64), torch.arange(20)[None])
    examples = draw_examples(known, torch.full((6000, 1), 50), 1, generator=generator)
    variance = float(values.var(correction=0))
    # k draws, then n draws of those: s^2 (1/k + 1/n - 1/(kn)).
    expected = variance * (1 / 20 + 1 / 50 - 1 / 1000)
    assert float(values[examples].mean(1).var()) == pytest.approx(expected, rel=0.06)


def test_nearby_compositions_stay_on_the_present_classes() -> None:
    centre = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]], dtype=torch.float64)
    found = nearby_compositions(centre, centre > 0, 400, spread=0.04, generator=generator_for(0, "nearby"))
    torch.testing.assert_close(found.sum(2), torch.ones(2, 400, dtype=torch.float64))
    assert not bool(found[0, :, 2].any())
    torch.testing.assert_close(found.mean(1), centre, atol=0.01, rtol=0)


def test_copies_are_moved_by_a_pixel_at_most() -> None:
    image = torch.zeros(1, 1, 5, 5)
    image[0, 0, 2, 2] = 1
    copies = augmented(image, 40, generator=generator_for(0, "copies"))
    assert torch.equal(copies[0], image[0])
    places = {tuple(copy[0].nonzero()[0].tolist()) for copy in copies}
    assert places == {(row, column) for row in (1, 2, 3) for column in (1, 2, 3)}


def test_released_changes_are_clipped_and_noised_as_the_clients_do() -> None:
    (view,), _ = views()
    release = Release(clip=0.01, noise_scale=0.5, parameters=("output.bias",))
    noisy = dataclasses.replace(view, releases=(release,))
    deltas = {"output.bias": torch.ones(4000, 10), "other": torch.ones(4000, 2)}
    found = as_released(noisy, deltas, generator=generator_for(0, "release"))
    assert float(found["output.bias"].mean()) == pytest.approx(0.01 / 10**0.5, abs=0.01)
    assert float(found["output.bias"].std()) == pytest.approx(0.5, rel=0.02)
    assert torch.equal(found["other"], deltas["other"])


def test_distances_and_null_errors_by_hand() -> None:
    errors = composition_errors(torch.tensor([[0.5, 0.5, 0.0]]), torch.tensor([[0.2, 0.5, 0.3]]))
    assert {name: round(float(value[0]), 6) for name, value in errors.items()} == {
        "l1": 0.6,
        "l2": round((2 * 0.09) ** 0.5, 6),
        "linf": 0.3,
    }
    present = torch.tensor([[True, True, False, False], [True, True, True, True]])
    held = torch.tensor([[True, False, True, True], [True, True, True, True]])
    wrong = null_class_errors(present, held)
    assert wrong["null_false_positive"][0] == 1
    assert wrong["null_false_positive"][1].isnan()
    torch.testing.assert_close(wrong["null_false_negative"], torch.tensor([2 / 3, 0], dtype=torch.float64))
