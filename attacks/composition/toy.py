"""Clients of an image classifier who hold unequal numbers of examples of each class."""

import torch
from torch import Tensor

from fedleak.client.auxiliary_images import IMAGES, LABELS
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView

CLIENTS = 6
CLASSES, SHAPE = 6, (1, 8, 8)
AUXILIARY_PER_CLASS = 20
SPREAD = 0.2
"""Standard deviation of a pixel around the mean image of its class."""


def toy(*, each: int = 40, batch_size: int | None = None) -> tuple[RoundView, dict[str, Tensor]]:
    """What the server sees of clients after one epoch of SGD, one step by default, and their ``class_counts (V, K)``.

    Args:
        each: examples of each client.
        batch_size: examples of a step, None for all.
    """
    generator = generator_for(0, "composition toy")
    means = torch.rand(CLASSES, *SHAPE, generator=generator)
    # Cubes of uniform numbers: each client has much of a few classes and little of the others.
    weights = torch.rand(CLIENTS, CLASSES, generator=generator) ** 3
    client_labels = torch.multinomial(weights, each, replacement=True, generator=generator)
    known_labels = torch.arange(CLASSES).repeat(AUXILIARY_PER_CLASS)
    images, known_images = (
        means[labels] + SPREAD * torch.randn(len(labels), *SHAPE, generator=generator)
        for labels in (client_labels.flatten(), known_labels)
    )

    network = ClassifierOptions(name="mlp", hidden=32)
    algorithm = ImageClassifierAlgorithm(
        network=network,
        image_shape=SHAPE,
        num_classes=CLASSES,
        local=LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=batch_size),
    )
    classifier = build_classifier(network, image_shape=SHAPE, classes=CLASSES, generator=generator)
    model = {name: value.detach() for name, value in classifier.named_parameters()}
    examples = torch.arange(CLIENTS * each).reshape(CLIENTS, each)
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(CLIENTS),
        example_counts=torch.full((CLIENTS,), each),
        deltas=algorithm.simulate_examples(model, images, client_labels.flatten(), examples, generator=generator),
        model=model,
        algorithm=algorithm,
        auxiliary={IMAGES: known_images, LABELS: known_labels},
    )
    return view, {"class_counts": torch.stack([labels.bincount(minlength=CLASSES) for labels in client_labels])}
