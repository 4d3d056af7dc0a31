"""The rule for classes that a client lacks: when it holds, what weight decay does to it, its threshold."""

import pytest
import torch

from attacks.composition.base import layer_change
from attacks.composition.null_classes import published_present, published_rule
from client.engine.local_hyperparameters import LocalTraining
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


def test_weight_decay_breaks_the_rule() -> None:
    local = LocalTraining(optimizer="sgd", learning_rate=0.1, momentum=0.5, weight_decay=0.01, batch_size=20)
    (view,), true = views(local)
    null = true == 0
    assert float(published_rule(layer_change(view).weight)[null].double().mean()) > 0.5


def test_the_threshold_is_one_of_changes_divided_by_the_learning_rate() -> None:
    (view,), _ = views()
    weight = layer_change(view).weight
    largest = float(weight.amax(2)[0].sort().values[-2]) / 0.1  # the toy's learning rate
    present = published_present(view, "published", largest * 1.001)
    assert int(present[0].sum()) == 1
    assert int(published_present(view, "published", largest * 0.999)[0].sum()) == 2


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
