"""Separate matching finds images of a leaky toy, and nothing in another client's update."""

import dataclasses
import functools

import pytest
import torch
from torch import Tensor, nn

from fedleak.attacks.reconstruction.gradient_matching import decoupled
from fedleak.attacks.reconstruction.likeness import likeness, nearest
from fedleak.attacks.reconstruction.separate_matching import SeparatedImages, SeparateMatching, UnrelatedSeparate
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.engine.local_training import train_clients
from fedleak.core.errors import ViewError
from fedleak.core.view import RoundView
from fedleak.datamodules.images.synthetic_images import SyntheticImages
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.training.network_learner import NetworkLearner
from tests.attacks.runs import of_noise, run, with_noise

ONE_STEP = LocalTraining(optimizer="sgd", learning_rate=0.1)
FEW = SeparateMatching(max_iter=100, total_variation=0.002)


class Leaky(NetworkLearner):
    """Two convolutions, a pooling and two linear layers."""

    def __init__(self, local: LocalTraining, hidden: int = 40, *, convolutions: bool = True) -> None:
        super().__init__(local=local)
        front = [nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        width = 16 * 36 if convolutions else 144
        back = [nn.Flatten(), nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 10)]
        self.train_network(nn.Sequential(*(front if convolutions else []), *back))


@functools.cache
def toy(local: LocalTraining = ONE_STEP, hidden: int = 40, *, convolutions: bool = True) -> tuple[RoundView, Tensor]:
    """What a server sees of two clients with two images each, and the images ``(2, 2, 1, 12, 12)``."""
    split = ClientSplit(clients=2, examples_per_client=2)
    data = SyntheticImages(split=split, train_per_class=20, auxiliary_per_class=4, noise=0.2, seed=1)
    learner = Leaky(local, hidden, convolutions=convolutions)
    model = {name: value.clone() for name, value in learner.public_parameters().items()}
    cohort = data.cohort(0)
    known = data.auxiliary()
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(2),
        example_counts=cohort.counts,
        deltas=train_clients(learner.algorithm, model, {}, cohort, local, seed=0).deltas,
        model=model,
        algorithm=learner.algorithm,
        auxiliary={"images": known["image"], "labels": known["label"]},
    )
    return view, cohort.examples["image"]


def psnr(found: SeparatedImages, images: Tensor) -> float:
    matched = [nearest(*pair) for pair in zip(found.records, images, strict=True)]
    return float(likeness(matched, list(images))["psnr"].mean())


@pytest.mark.integration
def test_images_are_found_in_one_step_and_not_in_another_update() -> None:
    view, images = toy()
    found = run(FEW, view, SeparatedImages)
    assert found.separated.tolist() == [1, 1]
    assert psnr(found, images) > 25
    others = run(UnrelatedSeparate(max_iter=100, total_variation=0.002), view, SeparatedImages)
    assert psnr(others, images) < 14
    assert psnr(others, images.roll(1, 0)) > 25
    assert torch.equal(run(FEW, decoupled(view, "update"), SeparatedImages).records, others.records)


@pytest.mark.integration
def test_clients_whose_images_cannot_be_separated_get_gradient_matching() -> None:
    for view in (toy(hidden=1)[0], of_noise(toy()[0])):
        found = run(SeparateMatching(max_iter=3), view, SeparatedImages)
        assert found.separated.tolist() == [0, 0]
        assert found.count.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (lambda: toy(convolutions=False)[0], "convolutions"),
        (lambda: toy(dataclasses.replace(ONE_STEP, epochs=2))[0], "one step"),
        (lambda: toy(dataclasses.replace(ONE_STEP, optimizer="adam"))[0], "one step"),
        (lambda: with_noise(toy()[0], 0.1, 0), "add noise"),
    ],
)
def test_other_networks_steps_and_noise_are_refused(view: object, reason: str) -> None:
    assert callable(view)
    with pytest.raises(ViewError, match=reason):
        run(FEW, view(), SeparatedImages)
