"""A leaky federation of image classifiers: small generated images, ten clients of Decaf's compositions."""

import functools

import torch

from fedleak.attacks.composition.estimates import CompositionEstimate
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.engine.local_training import train_clients
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.nets.classifiers import ClassifierOptions
from fedleak.core.attack import Attack
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.datamodules.images.synthetic_images import SyntheticImages
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.modules.learners.image_classifier import FederatedClassifier

NETWORK = ClassifierOptions(hidden=32, channels=4)
SGD = LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=40)
SHAPE = (1, 12, 12)


@functools.cache
def source(seed: int = 0) -> SyntheticImages:
    split = ClientSplit(scheme="composition", composition="MNIST", examples_per_client=120)
    return SyntheticImages(split=split, train_per_class=250, auxiliary_per_class=20, noise=0.2, seed=seed)


def learner(local: LocalTraining = SGD, network: ClassifierOptions = NETWORK) -> ImageClassifierAlgorithm:
    return ImageClassifierAlgorithm(network=network, image_shape=SHAPE, num_classes=10, local=local)


@functools.cache
def views(
    local: LocalTraining = SGD, network: ClassifierOptions = NETWORK, rounds: int = 1, seed: int = 0
) -> tuple[tuple[RoundView, ...], torch.Tensor]:
    """What a server sees in every round, the earlier ones within the later, and the true proportions ``(10, 10)``."""
    data = source(seed)
    module = FederatedClassifier(num_classes=10, image_shape=SHAPE, network=network, local=local, seed=seed)
    known = data.auxiliary()
    seen: list[RoundView] = []
    for number in range(rounds):
        public = {name: value.clone() for name, value in module.public_parameters().items()}
        cohort = data.cohort(number)
        deltas = train_clients(module.algorithm, public, {}, cohort, local, seed=seed).deltas
        seen.append(
            RoundView(
                round=number,
                pseudonyms=torch.arange(len(cohort)) + 100,
                example_counts=cohort.counts,
                deltas=deltas,
                model=public,
                algorithm=learner(local, network),
                auxiliary={"images": known["image"], "labels": known["label"]},
                earlier=tuple(seen),
            )
        )
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.add_(deltas[name].mean(0))
    counts = data.class_counts().double()
    return tuple(seen), counts / counts.sum(1, keepdim=True)


def l1(inferred: torch.Tensor, true: torch.Tensor) -> float:
    return float((inferred - true).abs().sum(1).mean())


def estimate(attack: Attack, view: RoundView) -> CompositionEstimate:
    found = attack(view, generator=generator_for(0, "attack"))
    assert isinstance(found, CompositionEstimate)
    return found
