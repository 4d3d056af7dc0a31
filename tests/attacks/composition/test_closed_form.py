"""The closed form: exact for one full-batch step, for any activation, under decay and noise; refused otherwise."""

import dataclasses

import pytest
import torch

from fedleak.attacks.composition.closed_form import ClosedForm
from fedleak.client.auxiliary_images import auxiliary
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.nets.classifiers import ClassifierOptions
from fedleak.core.errors import ViewError
from fedleak.core.release import Release
from tests.attacks.runs import with_deltas, with_noise
from tests.composition_toys import estimate, l1, learner, views

SGD = LocalTraining(optimizer="sgd", learning_rate=0.02, batch_size=20)


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize(
    "local",
    [SGD, dataclasses.replace(SGD, momentum=0.9, learning_rate=0.004), dataclasses.replace(SGD, weight_decay=0.05)],
    ids=["sgd", "momentum", "decay"],
)
def test_shares_follow_from_the_last_layer(local: LocalTraining, weights: bool) -> None:
    (view,), true = views(local)
    assert l1(estimate(ClosedForm(weights=weights), view).proportions, true) < 0.1


@pytest.mark.parametrize("activation", ["leaky-relu", "gelu"])
def test_null_classes_are_found_for_activations_with_negative_features(activation: str) -> None:
    (view,), true = views(SGD, ClassifierOptions(hidden=32, channels=4, activation=activation))  # type: ignore[arg-type]
    wrong = estimate(ClosedForm(), view).present != (true > 0)
    assert float(wrong.double().mean()) < 0.05


def test_step_sizes_sum_to_what_a_constant_gradient_changes() -> None:
    local = LocalTraining(optimizer="sgd", learning_rate=0.1, momentum=0.9, batch_size=8, epochs=2)
    value = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([value], lr=0.1, momentum=0.9)
    for _ in range(2 * 3):  # 20 examples in batches of 8, twice
        value.grad = -torch.ones(1)
        optimizer.step()
    sums = learner(local).step_sums(torch.tensor([20]))
    assert sums is not None
    assert float(sums[0]) == pytest.approx(float(value.detach()[0]))


def test_strong_noise_draws_shares_to_equal_ones_and_hides_classes() -> None:
    (view,), true = views(SGD)
    noise = 20 * max(float(value.abs().max()) for value in view.deltas.values())
    noisy = with_noise(view, noise)
    found = estimate(ClosedForm(), noisy)
    shares, deviation = ClosedForm().shares(noisy, auxiliary(view, 10), noisy.deltas, view.example_counts)
    equal = torch.full_like(true, 0.1)
    assert l1(shares, equal) < 0.7 * l1(true, equal)
    assert float(deviation.min()) > 0.05
    assert int(found.present.sum()) < int((true > 0).sum())


def test_clipped_updates_count_by_their_direction() -> None:
    (view,), true = views(SGD)
    release = Release(clip=0.01, parameters=tuple(view.deltas))
    clipped = dataclasses.replace(with_deltas(view, lambda delta: delta / 50), releases=(release,))
    assert l1(estimate(ClosedForm(), clipped).proportions, true) < 0.25


def test_adaptive_optimizers_are_refused() -> None:
    (view,), _ = views(LocalTraining(optimizer="adam", learning_rate=0.01, batch_size=20))
    with pytest.raises(ViewError, match="SGD"):
        estimate(ClosedForm(), view)
