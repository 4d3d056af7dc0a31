"""Inference of label counts by linear systems, and the rate of optimizers that are not plain SGD."""

import dataclasses

import pytest
import torch

from fedleak.attacks.composition.base import network_outputs
from fedleak.attacks.composition.label_inference import AuxiliaryGradients, SoftLabels
from fedleak.attacks.composition.llg import LLG
from fedleak.client.auxiliary_images import auxiliary
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.last_layer import layer_change
from fedleak.core.seeding import generator_for
from tests.composition_toys import estimate, l1, learner, views

ONE_STEP = LocalTraining(optimizer="sgd", learning_rate=0.1)
ADAPTIVE = LocalTraining(optimizer="adadelta", learning_rate=1.0, eps=1e-6, batch_size=40)


def test_one_step_of_known_soft_labels_is_solved_exactly() -> None:
    (view,), true = views(ONE_STEP)
    known = auxiliary(view, 10)
    _, logits = network_outputs(learner(ONE_STEP), {n: v[None] for n, v in view.model.items()}, known.images)
    soft = logits[0].double().softmax(1).reshape(10, -1, 10).mean(1)
    bias = ONE_STEP.learning_rate * (true - true @ soft)
    made = dataclasses.replace(view, deltas={**view.deltas, "output.bias": bias})
    assert l1(estimate(SoftLabels(), made).proportions, true) < 1e-4


def test_the_auxiliary_gradients_of_one_step_are_those_of_the_classes() -> None:
    (view,), true = views(ONE_STEP)
    known = auxiliary(view, 10)
    made = learner(ONE_STEP).simulate_examples(
        view.model, known.images, known.labels, known.by_class, generator=generator_for(0, "classes")
    )
    mixed = {name: torch.einsum("vk,k...->v...", true.float(), value) for name, value in made.items()}
    found = estimate(AuxiliaryGradients(), dataclasses.replace(view, deltas=mixed))
    assert l1(found.proportions, true) < 1e-3


@pytest.mark.parametrize("attack", [LLG(), SoftLabels()], ids=lambda attack: attack.name)
def test_of_an_adaptive_optimizer_the_rate_is_fitted_to_simulated_clients(attack: SoftLabels | LLG) -> None:
    (view,), _ = views(ADAPTIVE)
    known = auxiliary(view, 10)
    simulator = learner(ADAPTIVE)

    def read(deltas: dict[str, torch.Tensor] | None) -> torch.Tensor:
        assert deltas is not None
        assert len(layer_change(view, deltas).bias) == attack.calibration
        return simulator.steps(view.example_counts)[:, None] * torch.full((1, 10), 0.7 * 0.3)

    def rate(local: LocalTraining) -> float:
        seen = dataclasses.replace(view, algorithm=learner(local))
        generator = generator_for(0, "rate")
        return float(attack.step_rate(seen, known, read, lambda s: torch.full_like(s, 0.3), generator=generator))

    assert rate(ADAPTIVE) == pytest.approx(0.7)
    assert rate(ONE_STEP) == pytest.approx(ONE_STEP.learning_rate)
