"""Clients of an image classifier who hold half of a pool of candidate records, the other half of which nobody holds."""

import json
from typing import Any, Literal

import torch
from torch import Tensor

from fedleak.client.adapters import AdapterOptions
from fedleak.client.algorithm import RecordAlgorithm
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.core.history import History
from fedleak.core.seeding import generator_for
from fedleak.core.view import CANDIDATE_LABELS, CANDIDATES

CLIENTS, EACH = 4, 10
POOL = 2 * CLIENTS * EACH
CLASSES, SHAPE = 4, (1, 8, 8)
WORDS, LENGTH = 400, 8
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": WORDS,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 64,
}
Kind = Literal["images", "texts"]
"""Images of an MLP, or texts on which the adapters of a tiny Llama are fine-tuned."""
Clients = tuple[RecordAlgorithm, dict[str, Tensor], Tensor, Tensor]
"""What they run on which model, the pool of records and their labels."""


def toy(kind: Kind = "images") -> tuple[History, dict[str, Tensor]]:
    """What the server sees of clients after local training, and who is a ``member (V, P)`` of whose data."""
    generator = generator_for(0, "record membership toy")
    algorithm, model, pool, labels = _texts(generator) if kind == "texts" else _images(generator)
    examples = torch.randperm(POOL, generator=generator)[: CLIENTS * EACH].reshape(CLIENTS, EACH)
    member = torch.zeros(CLIENTS, POOL, dtype=torch.bool)
    member[torch.arange(CLIENTS)[:, None], examples] = True
    view = History(
        round=0,
        pseudonyms=torch.arange(CLIENTS),
        example_counts=torch.full((CLIENTS,), EACH),
        deltas=algorithm.simulate_examples(model, pool, labels, examples, generator=generator),
        model=model,
        algorithm=algorithm,
        auxiliary={CANDIDATES: pool, CANDIDATE_LABELS: labels},
        sent_in=torch.zeros(CLIENTS, dtype=torch.int64),
    )
    return view, {"member": member, "clients": torch.arange(CLIENTS)}


def _images(generator: torch.Generator) -> Clients:
    """One step of SGD on all images."""
    network = ClassifierOptions(name="mlp", hidden=32, activation="tanh")
    algorithm = ImageClassifierAlgorithm(
        network=network,
        image_shape=SHAPE,
        num_classes=CLASSES,
        local=LocalTraining(optimizer="sgd", learning_rate=0.5),
    )
    classifier = build_classifier(network, image_shape=SHAPE, classes=CLASSES, generator=generator)
    model = {name: value.detach() for name, value in classifier.named_parameters()}
    images = torch.rand(POOL, *SHAPE, generator=generator)
    return algorithm, model, images, torch.randint(CLASSES, (POOL,), generator=generator)


def _texts(generator: torch.Generator) -> Clients:
    """An epoch of batches of four texts."""
    algorithm = PretrainedAlgorithm(
        config=json.dumps(LLAMA),
        local=LocalTraining(optimizer="sgd", learning_rate=0.5, batch_size=4),
        adapter=AdapterOptions(rank=16, targets=("q_proj", "v_proj")),
    )
    model = algorithm.first_model()
    for name, value in model.items():
        # A first B is zero, and A then has no gradient.
        if "lora_B" in name:
            model[name] = 0.05 * torch.randn(value.shape, generator=generator)
    texts = torch.randint(1, WORDS, (POOL, LENGTH), generator=generator)
    return algorithm, model, texts, torch.zeros(POOL, dtype=torch.int64)
