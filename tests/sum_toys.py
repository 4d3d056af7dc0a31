"""Small federations whose server receives sums of several clients' updates, round after round."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.nets.classifiers import ClassifierOptions
from fedleak.core.attack import Attack
from fedleak.core.history import History
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.datamodules.images.digits import Digits
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.defenses.base import Defense
from fedleak.defenses.secure_aggregation import SecureSum
from fedleak.evaluation.message_selection import client_truth
from fedleak.modules.learners.image_classifier import FederatedClassifier
from fedleak.recordings.joined_view import messages_view
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording
from tests.toys import quiet_trainer

ONE_STEP = LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=None)


def digits(*, clients: int = 12, each: int | None = 30, **options: Any) -> Digits:
    """Clients of unequal shares of the ten classes."""
    split = ClientSplit(scheme="dirichlet", clients=clients, alpha=0.5, examples_per_client=each)
    return Digits(**{"split": split, "clients_per_round": 4, "auxiliary_per_class": 20, **options})


def sums(together: int) -> SecureSum:
    """Secure aggregation in which the truth of every client is recorded."""
    return SecureSum(participants=together, targets=together)


def record(
    folder: Path, data: Digits, *, rounds: int, defenses: Sequence[Defense] = (), hidden: int = 16, **options: Any
) -> Recording:
    """A training of a small classifier in which each client makes one step a round."""
    module = FederatedClassifier(
        num_classes=10,
        image_shape=(1, 8, 8),
        network=ClassifierOptions(name="mlp", hidden=hidden),
        local=ONE_STEP,
        defenses=list(defenses),
    )
    recorder = DeltaRecorder(directory=str(folder / "deltas"), **options)
    quiet_trainer(rounds, folder, recorder).fit(module, datamodule=data)
    return Recording(folder / "deltas")


def history_of(recording: Recording) -> History:
    return messages_view(recording, learner=recorded_learner(recording))


def scored(attack: Attack, recording: Recording) -> tuple[list[int], dict[str, Tensor]]:
    """After how many rounds clients are estimated, and each metric ``(G, U)`` of the clients then."""
    view = history_of(recording)
    estimate: Any = attack(view, generator=generator_for(0, "attack"))
    scores = estimate.score(view, client_truth(recording, view, estimate.truth))
    after = estimate.after.tolist()
    return after, {name: value.reshape(len(after), -1) for name, value in scores.metrics.items()}


def summed(rounds: Sequence[RoundView], groups: Sequence[Tensor]) -> History:
    """What the server sees of clients' updates if it receives the sum of each round's group ``(P,)`` of positions."""
    parts = {}
    for number, (view, group) in enumerate(zip(rounds, groups, strict=True)):
        deltas = {
            name: value[group].sum(0, keepdim=True).expand_as(value[group]) for name, value in view.deltas.items()
        }
        names = view.pseudonyms[group].sort().values.expand(len(group), -1)
        seen = dataclasses.replace(view.select(group), round=number, deltas=deltas, participants=names, earlier=())
        parts[number] = seen
    joined = {
        name: torch.cat([getattr(part, name) for part in parts.values()])
        for name in ("pseudonyms", "example_counts", "participants")
    }
    sent_in = torch.tensor([number for number, part in parts.items() for _ in range(part.victims)])
    return History(**parts[0].common() | joined | {"deltas": {}}, sent_in=sent_in, by_round=parts)
