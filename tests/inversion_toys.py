"""Clients that train a small MLP on 8-bit images with black background, as a server sees them."""

import dataclasses
import functools
from collections.abc import Mapping

import torch
from torch import Tensor

from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier
from fedleak.core.record_hash import record_hashes
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView

SHAPE = (1, 12, 12)
NETWORK = ClassifierOptions(name="mlp", hidden=200, weights="normal")
ONE_STEP = LocalTraining(optimizer="sgd", learning_rate=0.1)


def pictures(count: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """``(count, 1, 12, 12)`` images of a random rectangle each, and classes."""
    generator = generator_for(seed, "pictures")
    place = torch.rand(count, 4, generator=generator)
    low, size = (place[:, :2] * 6).long(), (place[:, 2:] * 4).long() + 3
    axis = torch.arange(12)
    inside = (axis >= low[..., None]) & (axis < (low + size)[..., None])
    levels = torch.randint(1, 256, (count, 12, 12), generator=generator)
    drawn = levels * (inside[:, 0, :, None] & inside[:, 1, None, :])
    return drawn[:, None].float() / 255, torch.randint(10, (count,), generator=generator)


@functools.cache
def server_view(
    clients: int = 3,
    records: int = 8,
    *,
    local: LocalTraining = ONE_STEP,
    network: ClassifierOptions = NETWORK,
    seed: int = 0,
    double: bool = False,
    pictured: tuple[Tensor, Tensor] | None = None,
) -> tuple[RoundView, dict[str, Tensor]]:
    """What the server sees, and the truth."""
    images, labels = pictured or pictures(clients * records, seed=seed)
    if double:
        images = (images * 255).round().double() / 255
    learner = ImageClassifierAlgorithm(network=network, image_shape=SHAPE, num_classes=10, local=local)
    made = build_classifier(network, image_shape=SHAPE, classes=10, generator=generator_for(seed, "model"))
    model = {name: value.detach().to(images.dtype) for name, value in made.named_parameters()}
    own = torch.arange(len(images)).reshape(clients, records)
    deltas = learner.simulate_examples(model, images, labels, own, generator=generator_for(seed, "order"))
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(clients),
        example_counts=torch.full((clients,), records),
        deltas=deltas,
        model=model,
        algorithm=learner,
    )
    return view, truth_of(images.reshape(clients, records, *SHAPE), labels.reshape(clients, records))


def truth_of(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Salted hashes, and the records."""
    salts = torch.arange(len(images) * 16, dtype=torch.uint8).reshape(-1, 16)
    hashes = torch.stack([record_hashes(own, salt) for own, salt in zip(images, salts, strict=True)])
    return {"record_hash": hashes, "record_salt": salts, "record_labels": labels, "records": images}


def changed(view: RoundView, deltas: Mapping[str, Tensor]) -> RoundView:
    """The view with other deltas."""
    return dataclasses.replace(view, deltas=dict(deltas))
