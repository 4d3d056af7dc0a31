"""Clients whose updates the server receives in sums of four, round after round."""

import dataclasses
from typing import Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedleak.client.algorithm import ExampleAlgorithm
from fedleak.client.auxiliary_images import IMAGES, LABELS
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier
from fedleak.client.text import TextAlgorithm, TextOptions
from fedleak.core.history import History
from fedleak.core.seeding import generator_for
from fedleak.core.view import CANDIDATE_LABELS, CANDIDATES, RoundView

CLIENTS, ROUNDS, TOGETHER, EACH = 10, 16, 4, 10
CLASSES, SHAPE = 5, (1, 8, 8)
AUXILIARY_PER_CLASS = 20
SPREAD = 0.2
"""Standard deviation of a pixel around the mean image of its class."""
WORDS, LENGTH = 80, 6
Kind = Literal["images", "texts"]
"""Images of an MLP, whose records are also candidates, or texts of a language model."""


@dataclasses.dataclass(frozen=True)
class _Clients:
    """What all clients have in common, and the ground truth of each."""

    algorithm: ExampleAlgorithm
    model: dict[str, Tensor]
    records: Tensor
    labels: Tensor
    auxiliary: dict[str, Tensor]
    truth: dict[str, Tensor]


def toy(kind: Kind = "images") -> tuple[History, dict[str, Tensor]]:
    """What the server sees of all rounds, each of one step of SGD, and the ground truth of each sender."""
    generator = generator_for(0, "sums over rounds toy")
    clients = _writers(generator) if kind == "texts" else _classifiers(generator)
    examples = torch.arange(CLIENTS * EACH).reshape(CLIENTS, EACH)
    model = clients.model
    parts = {}
    for number in range(ROUNDS):
        senders = torch.randperm(CLIENTS, generator=generator)[:TOGETHER].sort().values
        deltas = clients.algorithm.simulate_examples(
            model, clients.records, clients.labels, examples[senders], generator=generator
        )
        sums = {name: value.sum(0, keepdim=True) for name, value in deltas.items()}
        parts[number] = RoundView(
            round=number,
            pseudonyms=senders,
            example_counts=torch.full((TOGETHER,), EACH),
            # Secure aggregation: for each client of the round, the server has the sum in place of its update.
            deltas={name: value.expand(TOGETHER, *value.shape[1:]) for name, value in sums.items()},
            model=model,
            participants=senders.expand(TOGETHER, TOGETHER),
            algorithm=clients.algorithm,
            auxiliary=clients.auxiliary,
        )
        model = {name: value + sums[name][0] / TOGETHER for name, value in model.items()}

    senders = torch.cat([part.pseudonyms for part in parts.values()])
    view = History(
        round=0,
        pseudonyms=senders,
        example_counts=torch.full((len(senders),), EACH),
        deltas={},
        model=clients.model,
        participants=senders.reshape(ROUNDS, TOGETHER).repeat_interleave(TOGETHER, dim=0),
        algorithm=clients.algorithm,
        auxiliary=clients.auxiliary,
        sent_in=torch.arange(ROUNDS).repeat_interleave(TOGETHER),
        by_round=parts,
    )
    return view, {name: value[senders] for name, value in clients.truth.items()} | {"clients": senders}


def _classifiers(generator: torch.Generator) -> _Clients:
    means = torch.rand(CLASSES, *SHAPE, generator=generator)
    # Squares of uniform numbers: each client has much of some classes and little of the others.
    weights = torch.rand(CLIENTS, CLASSES, generator=generator) ** 2
    client_labels = torch.multinomial(weights, EACH, replacement=True, generator=generator)
    labels = client_labels.flatten()
    known_labels = torch.arange(CLASSES).repeat(AUXILIARY_PER_CLASS)
    images, known_images = (
        means[classes] + SPREAD * torch.randn(len(classes), *SHAPE, generator=generator)
        for classes in (labels, known_labels)
    )
    network = ClassifierOptions(name="mlp", hidden=32)
    algorithm = ImageClassifierAlgorithm(
        network=network,
        image_shape=SHAPE,
        num_classes=CLASSES,
        local=LocalTraining(optimizer="sgd", learning_rate=0.1),
    )
    classifier = build_classifier(network, image_shape=SHAPE, classes=CLASSES, generator=generator)
    return _Clients(
        algorithm,
        {name: value.detach() for name, value in classifier.named_parameters()},
        images,
        labels,
        {IMAGES: known_images, LABELS: known_labels, CANDIDATES: images, CANDIDATE_LABELS: labels},
        {
            "class_counts": torch.stack([classes.bincount(minlength=CLASSES) for classes in client_labels]),
            "own_member": torch.arange(CLIENTS)[:, None] == torch.arange(CLIENTS).repeat_interleave(EACH),
        },
    )


def _writers(generator: torch.Generator) -> _Clients:
    # Each client writes of a dozen words of its own; 0 is padding.
    vocabularies = [torch.randperm(WORDS - 1, generator=generator)[:12] + 1 for _ in range(CLIENTS)]
    choices = torch.randint(12, (CLIENTS, EACH * LENGTH), generator=generator)
    texts = torch.stack(vocabularies).gather(1, choices)
    network = TextOptions(vocabulary=WORDS, embedding=8, hidden=8)
    algorithm = TextAlgorithm(network=network, local=LocalTraining(optimizer="sgd", learning_rate=1.0))
    # Uniform weights with a bound of one over the root of the hidden units, as PyTorch draws them.
    bound = network.hidden**-0.5
    model = {
        name: bound * (2 * torch.rand(shape, generator=generator) - 1)
        for name, shape in algorithm.network_shapes({}).items()
    }
    words = pad_sequence([torch.unique(own) for own in texts], batch_first=True)
    records = texts.reshape(-1, LENGTH)
    return _Clients(algorithm, model, records, torch.zeros(len(records)), {}, {"words": words})
