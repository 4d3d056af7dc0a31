"""A leaky federation for membership: clients that train a small network on random images, and a pool of candidates."""

import dataclasses
import functools
from collections.abc import Mapping

import torch
from torch import Tensor

from fedleak.attacks.record_membership.estimates import RecordMembershipEstimate
from fedleak.attacks.source.source_inference import SourceEstimate
from fedleak.client.algorithm import RecordAlgorithm
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier
from fedleak.core.attack import Attack
from fedleak.core.history import History
from fedleak.core.release import Release
from fedleak.core.seeding import generator_for
from fedleak.core.view import CANDIDATE_LABELS, CANDIDATES, RoundView

CLIENTS, EACH, CLASSES, SHAPE = 4, 20, 4, (1, 12, 12)
NETWORK = ClassifierOptions(hidden=32, channels=8, activation="tanh")
ONE_STEP = LocalTraining(optimizer="sgd", learning_rate=0.5)
ONE_EPOCH = LocalTraining(optimizer="sgd", learning_rate=0.2, batch_size=10)
Toy = tuple[History, dict[str, Tensor]]

MEMBER = torch.tensor([[1, 1, 0, 0], [0, 0, 1, 0]], dtype=torch.bool)
SCORES = torch.tensor([[3.0, 0.5, 1.0, 0.0], [0.0, 1.0, 2.0, 2.0]])
TRUTH = {"member": MEMBER, "clients": torch.tensor([7, 5])}
"""Two clients and four candidates, for scores by hand."""


def learner(local: LocalTraining = ONE_STEP) -> ImageClassifierAlgorithm:
    return ImageClassifierAlgorithm(network=NETWORK, image_shape=SHAPE, num_classes=CLASSES, local=local)


@functools.cache
def toy(
    local: LocalTraining = ONE_STEP, *, seed: int = 0, dealt_anew: bool = False, noise: float = 0.0, apart: float = 1.0
) -> Toy:
    """View of one round, and the truth: half of the pool is held by the clients, the other half by nobody.

    Args:
        local: how clients train.
        seed: seed of everything.
        dealt_anew: clients train on other records of the pool than the truth says, which are drawn before they train.
        noise: declared standard deviation of Gaussian noise on every number.
        apart: part of the distance of the images from their mean that they have; near 0 they are almost alike.
    """
    generator = generator_for(seed, "membership-toy")
    size = 2 * CLIENTS * EACH
    images, labels = torch.rand(size, *SHAPE, generator=generator), torch.arange(size) % CLASSES
    images = images.lerp(images.mean(0), 1 - apart)
    place = torch.randperm(size, generator=generator)
    member = torch.zeros(CLIENTS, size, dtype=torch.bool)
    held = place[: CLIENTS * EACH].reshape(CLIENTS, EACH)
    member[torch.arange(CLIENTS)[:, None], held] = True
    trained = torch.randperm(size, generator=generator)[: CLIENTS * EACH].reshape(CLIENTS, EACH) if dealt_anew else held
    network = build_classifier(NETWORK, image_shape=SHAPE, classes=CLASSES, generator=generator)
    model = {name: value.detach().clone() for name, value in network.named_parameters()}
    deltas = learner(local).simulate_examples(model, images, labels, trained, generator=generator)
    releases: tuple[Release, ...] = ()
    if noise:
        deltas = {name: v + noise * torch.randn(v.shape, generator=generator) for name, v in deltas.items()}
        releases = (Release(noise_scale=noise, parameters=tuple(deltas)),)
    view = as_history(learner(local), model, deltas, {CANDIDATES: images, CANDIDATE_LABELS: labels}, EACH)
    view = dataclasses.replace(view, releases=releases)
    return view, {"member": member, "clients": torch.arange(CLIENTS)}


def as_history(
    algorithm: RecordAlgorithm,
    model: Mapping[str, Tensor],
    deltas: Mapping[str, Tensor],
    auxiliary: Mapping[str, Tensor],
    records: int,
) -> History:
    """View of one round of clients with as many records each."""
    clients = len(next(iter(deltas.values())))
    return History(
        round=0,
        pseudonyms=torch.arange(clients) + 100,
        example_counts=torch.full((clients,), records),
        deltas=deltas,
        model=model,
        algorithm=algorithm,
        auxiliary=auxiliary,
        sent_in=torch.zeros(clients, dtype=torch.int64),
    )


def of_two_clients() -> History:
    """A view for `SCORES` and `TRUTH`."""
    labels = torch.tensor([0, 1, 1, 0])
    return dataclasses.replace(toy()[0].select(torch.arange(2)), auxiliary={CANDIDATE_LABELS: labels})


@functools.cache
def several_rounds(count: int, local: LocalTraining = ONE_EPOCH) -> Toy:
    """The same clients in several rounds, in one view without deltas; the models differ as of independent trainings."""
    first, truth = toy(local)
    held = truth["member"].nonzero()[:, 1].reshape(CLIENTS, EACH)
    parts = {}
    for number in range(count):
        model, generator = toy(local, seed=number)[0].model, generator_for(number, "rounds")
        pool = first.auxiliary[CANDIDATES], first.auxiliary[CANDIDATE_LABELS]
        deltas = learner(local).simulate_examples(model, *pool, held, generator=generator)
        parts[number] = RoundView(**first.common() | {"round": number, "model": model, "deltas": deltas})
    together = first.select(torch.arange(CLIENTS).repeat(count))
    sent_in = torch.arange(count).repeat_interleave(CLIENTS)
    view = dataclasses.replace(together, deltas={}, sent_in=sent_in, by_round=parts)
    return view, {"member": truth["member"].repeat(count, 1), "clients": truth["clients"].repeat(count)}


def scored(attack: Attack, view: History, truth: dict[str, Tensor], name: str = "") -> float:
    """Mean of a metric over clients: the AUC of membership, or the share of sources named."""
    estimate = attack(view, generator=generator_for(0, "attack"))
    assert isinstance(estimate, RecordMembershipEstimate | SourceEstimate)
    default = "auc" if isinstance(estimate, RecordMembershipEstimate) else "source"
    return float(estimate.score(view, truth).metrics[name or default].nanmean())
