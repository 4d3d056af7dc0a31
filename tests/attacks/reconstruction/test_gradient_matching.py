"""Gradient matching finds images of a leaky toy, and nothing in another client's update or with another model."""

import dataclasses
import functools
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from fedleak.attacks.reconstruction.gradient_matching import (
    DeepLeakage,
    FedAvgMatching,
    GradientMatching,
    InvertingGradients,
    MatchedImages,
    UnrelatedUpdate,
    decoupled,
    labels_of,
    predicted_cosine,
)
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.errors import ViewError
from fedleak.core.view import RoundView
from fedleak.training.network_learner import NetworkLearner
from tests.attacks.runs import run, with_noise
from tests.reconstruction_toys import psnr, view_of_images

SHAPE = (1, 12, 12)
ONE_STEP = LocalTraining(optimizer="sgd", learning_rate=0.1)
FIVE_STEPS = LocalTraining(optimizer="sgd", learning_rate=1.0, epochs=5)
FEW: dict[str, Any] = {"max_iter": 100, "total_variation": 0.002, "accelerator": "cpu"}


class Leaky(NetworkLearner):
    """A network of two linear layers."""

    def __init__(self, local: LocalTraining) -> None:
        super().__init__(local=local)
        self.train_network(nn.Sequential(nn.Flatten(), nn.Linear(144, 48), nn.Sigmoid(), nn.Linear(48, 10)))


@functools.cache
def toy(local: LocalTraining = ONE_STEP) -> tuple[RoundView, Tensor]:
    """What a server sees of three clients with two images each, and the images ``(3, 2, *SHAPE)``."""
    learner = Leaky(local)
    model = {name: value.clone() for name, value in learner.public_parameters().items()}
    return view_of_images(learner.algorithm, model)


@pytest.mark.integration
@pytest.mark.parametrize("attack", [InvertingGradients(**FEW), DeepLeakage(max_iter=100, accelerator="cpu")])
def test_images_are_found_in_one_step_and_not_in_another_update(attack: GradientMatching) -> None:
    view, images = toy()
    assert psnr(attack, view, images) > 20
    assert psnr(attack, decoupled(view, "update"), images) < 14
    assert psnr(attack, decoupled(view, "model"), images) < 14


@pytest.mark.integration
def test_simulated_steps_find_images_in_several_steps() -> None:
    view, images = toy(FIVE_STEPS)
    simulated = psnr(FedAvgMatching(**FEW), view, images)
    assert simulated > 18
    assert simulated > psnr(InvertingGradients(**FEW), view, images) + 1


@pytest.mark.integration
@pytest.mark.parametrize("unrelated", ["update", "model"])
def test_the_baseline_is_without_the_clients_update(unrelated: Literal["update", "model"]) -> None:
    view, _ = toy()
    few: dict[str, Any] = FEW | {"max_iter": 5}
    baseline = run(UnrelatedUpdate(**few, unrelated=unrelated), view, MatchedImages)
    inverted = run(InvertingGradients(**few), decoupled(view, unrelated), MatchedImages)
    torch.testing.assert_close(baseline.records, inverted.records)


@pytest.mark.integration
def test_starts_are_repeated_and_the_best_is_kept() -> None:
    view, _ = toy()
    few: dict[str, Any] = FEW | {"max_iter": 5}
    once, twice = (run(InvertingGradients(**few, restarts=count), view, MatchedImages) for count in (1, 2))
    assert (once.iterations, twice.iterations) == ((5, 5), (10, 10))


@pytest.mark.integration
def test_training_that_cannot_be_differentiated_is_refused() -> None:
    view, _ = toy()
    momentum = dataclasses.replace(ONE_STEP, momentum=0.9)
    other = dataclasses.replace(view, algorithm=dataclasses.replace(view.algorithm, local=momentum))  # type: ignore[type-var]
    with pytest.raises(ViewError, match="momentum"):
        run(FedAvgMatching(**FEW), other, MatchedImages)


def test_one_client_has_no_other_update() -> None:
    view, _ = toy()
    with pytest.raises(ViewError, match="clients"):
        decoupled(view.select(torch.tensor([0])), "update")


def test_labels_are_in_the_order_of_classes() -> None:
    assert labels_of(torch.tensor([[2, 0, 1], [0, 1, 0]])).tolist() == [[0, 0, 2], [1, -1, -1]]


def test_the_predicted_cosine_is_that_of_noise() -> None:
    view, _ = toy()
    size = sum(value[0].numel() for value in view.deltas.values())
    length = torch.stack([value.flatten(1).square().sum(1) for value in view.deltas.values()]).sum(0).sqrt()
    seen = with_noise(view, float(length.mean()) / size**0.5)
    clean, received = (torch.cat([value.flatten(1) for value in one.deltas.values()], 1) for one in (view, seen))
    cosine = torch.nn.functional.cosine_similarity(clean, received)
    torch.testing.assert_close(predicted_cosine(seen).float(), cosine, atol=0.05, rtol=0)
    assert predicted_cosine(view).tolist() == [1, 1, 1]
