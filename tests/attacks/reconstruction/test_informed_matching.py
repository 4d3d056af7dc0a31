"""Gradient matching that knows the defence beats the one that does not, and finds nothing in another update."""

import dataclasses
import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction.gradient_matching import InvertingGradients, MatchedImages, decoupled
from fedleak.attacks.reconstruction.informed_matching import InformedMatching
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.defenses.mixup import Mixup
from fedleak.defenses.soteria import Soteria
from tests.attacks.runs import of_noise, run
from tests.reconstruction_toys import few_images, psnr, view_of_images

SHAPE = (1, 12, 12)
LEAKY = ClassifierOptions(name="mlp", hidden=32, activation="tanh")
FEW: dict[str, Any] = {"max_iter": 150, "total_variation": 0.002, "accelerator": "cpu"}
DEFENCES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "none": ({}, {}),
    "soteria": ({}, {"soteria": Soteria(share=0.9)}),
    "precode": ({"bottleneck": 32}, {}),
    "mixup": ({}, {"mixup": Mixup(alpha=1.0)}),
    "dropout": ({"dropout": 0.5}, {}),
}


@functools.cache
def toy(name: str) -> tuple[RoundView, Tensor]:
    """What a server sees of three defended clients with two images each, and the images ``(3, 2, *SHAPE)``."""
    changed, defence = DEFENCES[name]
    network = dataclasses.replace(LEAKY, **changed)
    classes = int(few_images().auxiliary()["label"].max()) + 1
    local = LocalTraining(optimizer="sgd", learning_rate=0.1)
    learner = ImageClassifierAlgorithm(network=network, image_shape=SHAPE, num_classes=classes, local=local, **defence)
    built = build_classifier(network, image_shape=SHAPE, classes=classes, generator=generator_for(0, "model"))
    model = {parameter: value.detach() for parameter, value in built.named_parameters()}
    return view_of_images(learner, model)


@pytest.mark.integration
@pytest.mark.parametrize(("name", "gain"), [("soteria", 1.0), ("precode", 2.0), ("dropout", 2.0)])
def test_who_knows_the_defence_finds_more(name: str, gain: float) -> None:
    view, images = toy(name)
    ignorant, informed = (psnr(kind(**FEW), view, images) for kind in (InvertingGradients, InformedMatching))
    assert informed > ignorant + gain


@pytest.mark.integration
@pytest.mark.parametrize("name", DEFENCES)
def test_another_clients_update_and_noise_show_nothing(name: str) -> None:
    view, images = toy(name)
    attack = InformedMatching(**FEW)
    found = psnr(attack, view, images)
    assert found > 16
    assert psnr(attack, decoupled(view, "update"), images) < found - 3
    assert psnr(attack, of_noise(view), images) < found - 3


@pytest.mark.integration
def test_without_a_defence_it_is_inverting_gradients() -> None:
    view, _ = toy("none")
    few: dict[str, Any] = FEW | {"max_iter": 5}
    plain, informed = (run(kind(**few), view, MatchedImages) for kind in (InvertingGradients, InformedMatching))
    torch.testing.assert_close(plain.records, informed.records)


def test_the_gradients_that_a_defence_spoils_are_left_out() -> None:
    assert InformedMatching().leave_out(toy("none")[0]) == set()
    assert InformedMatching().leave_out(toy("soteria")[0]) == {"output.weight"}
    layers = {name.rpartition(".")[0] for name in InformedMatching().leave_out(toy("precode")[0])}
    assert layers == {"bottleneck.encoder", "bottleneck.decoder", "output"}
    assert InformedMatching(omit=False).leave_out(toy("soteria")[0]) == ()


def test_what_is_searched_are_the_defences_random_numbers() -> None:
    labels = torch.zeros(3, 2, dtype=torch.int64)
    shapes = {}
    for name in DEFENCES:
        found = InformedMatching().unknown(toy(name)[0], labels, generator_for(0, "attack"))
        shapes[name] = {key: tuple(one.start.shape) for key, one in found.items()}
    assert shapes == {
        "none": {},
        "soteria": {},
        "precode": {"noise/1": (3, 2, 32)},
        "mixup": {"mixing": (3, 2, 2)},
        "dropout": {"noise/0": (3, 2, 32)},
    }
    assert InformedMatching(search=False).unknown(toy("dropout")[0], labels, generator_for(0, "attack")) == {}
