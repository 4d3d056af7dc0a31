"""Rules for classes that a client lacks: what weight decay does to them, and what calibration finds."""

import dataclasses

import pytest
import torch

from attacks.composition.base import layer_change
from attacks.composition.null_classes import calibrate, published_rule, without_decay
from modules.engine.local_hyperparameters import LocalTraining
from protocol.seeding import generator_for
from tests.composition_toys import learner, views


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


def test_weight_decay_breaks_the_rule_and_subtracting_it_fixes_it_exactly_for_sgd() -> None:
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


def test_no_decay_is_reported_if_the_optimizer_does_not_separate_it() -> None:
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
    rule = calibrate(values[None, :, None], present[None])
    assert rule(values[None, :, None]).tolist() == [[False] * 4 + [True] * 6]
    assert rule.errors == pytest.approx(1 / 8)
