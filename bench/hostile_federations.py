"""Federations of digit classifiers that are not what their recordings declare, and honest ones, in plain torch.

Clients train on scikit-learn's 1,797 digits of 8 x 8 pixels, of which the server has 200 and the pool of candidates
120 that no client has.
"""

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier
from fedleak_recorder import Recorder

SHAPE, CLASSES = (1, 8, 8), 10
AUXILIARY = 200
_NETWORK = ClassifierOptions(name="mlp", hidden=32)
CANDIDATES = 10
"""Candidates of each client, of which it has all, and as many that nobody has."""
Update = dict[str, Tensor]


class Sent(NamedTuple):
    """A round's updates by client, the global model, and a source of noise."""

    updates: dict[int, Update]
    model: Update
    generator: torch.Generator

    def noise(self, like: Tensor) -> Tensor:
        """Standard normal numbers in the shape of a tensor."""
        return torch.randn(like.shape, generator=self.generator).to(like)


Change = Callable[[Sent], dict[int, Update]]
"""What becomes of the clients' updates before they are recorded."""
Loss = Callable[[Tensor, Tensor], Tensor]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Federation:
    """What clients do, and what the recording says of it.

    Attributes:
        clients: number of clients.
        participants: how many of them train in a round; None for all.
        examples: number of examples of a client.
        other_examples: the same of every other client; None for the same.
        alpha: concentration of the Dirichlet law of a client's class shares.
        duplicates: whether every other client has the data of the one before it.
        rounds: number of recorded rounds.
        warm: rounds of training before the first recorded one.
        network: architecture.
        optimizer: the clients' optimizer.
        learning_rate: its learning rate.
        momentum: momentum of SGD.
        weight_decay: weight decay of SGD.
        epochs: passes over the examples.
        batch_size: examples in a batch.
        loss: mean loss of a batch.
        proximal: weight of FedProx's term, 0 for none.
        gradient_clip: norm to which the gradient of each step is clipped, None for none.
        server_momentum: momentum of the server.
        change: what becomes of updates before they are recorded.
        declared: entries of the declared local training that are other than what clients do.
        declares_learner: whether the recording names a learner.
        releases: what the recording says that clients do to their updates.
        reported: number of examples that clients report; None for the true one.
        candidates: whether the server has a pool of candidates.
        brightness: exponent of the server's images, which makes them darker than the clients'; 1 for alike ones.
        standardised: whether pixels are standardised, so that records lie on no grid.
        dtype: type of models and updates.
        seed: seed of all draws.
    """

    clients: int = 12
    participants: int | None = None
    examples: int = 40
    other_examples: int | None = None
    alpha: float = 0.5
    duplicates: bool = False
    rounds: int = 2
    warm: int = 0
    network: ClassifierOptions = _NETWORK
    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    epochs: int = 1
    batch_size: int = 40
    loss: Loss = functional.cross_entropy
    proximal: float = 0.0
    gradient_clip: float | None = None
    server_momentum: float = 0.0
    change: Change | None = None
    declared: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    declares_learner: bool = True
    releases: Sequence[Mapping[str, Any]] = ()
    reported: int | None = None
    candidates: bool = True
    brightness: float = 1.0
    standardised: bool = False
    dtype: torch.dtype = torch.float32
    seed: int = 0

    @property
    def learner(self) -> dict[str, Any]:
        """The learner that the recording names."""
        local: dict[str, Any] = {"optimizer": self.optimizer, "learning_rate": self.learning_rate}
        local |= {"batch_size": self.batch_size, "epochs": self.epochs, "weight_decay": self.weight_decay}
        if self.optimizer == "sgd":
            local["momentum"] = self.momentum
        shape = {"image_shape": list(SHAPE), "num_classes": CLASSES}
        network = {"name": self.network.name, "hidden": self.network.hidden, "channels": self.network.channels}
        return {"name": "classifier", "arguments": {"network": network, **shape, "local": {**local, **self.declared}}}

    def record(self, folder: Path) -> None:
        """Trains the federation and records it, with ground truth."""
        _Training(self).record(folder)


@functools.cache
def digits() -> tuple[Tensor, Tensor]:
    """Images ``(M, 1, 8, 8)`` with 17 grey levels of 8 bits, and labels ``(M,)``."""
    source = load_digits()
    images = torch.tensor((source.data / 16 * 255).round() / 255).float()
    return images.reshape(-1, *SHAPE), torch.tensor(source.target)


class _Training:
    """A federation with its clients' data and its model."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.generator = torch.Generator().manual_seed(federation.seed + 1)
        self.numpy = np.random.default_rng(federation.seed)
        images, self.labels = digits()
        if federation.standardised:
            images = (images - images.mean(0)) / (images.std(0) + 1e-3)
        self.images = images.to(federation.dtype)
        order = self.numpy.permutation(len(self.labels))
        self.auxiliary, self.free = order[:AUXILIARY], order[AUXILIARY:]
        self.parts = list(self._parts())
        pool = torch.tensor(self.free[: CANDIDATES * federation.clients])
        self.candidates = torch.cat([*(part[:CANDIDATES] for part in self.parts), pool])
        network = federation.network
        first = torch.Generator().manual_seed(federation.seed)
        self.model = build_classifier(network, image_shape=SHAPE, classes=CLASSES, generator=first)
        self.model.to(federation.dtype)

    def _parts(self) -> Iterator[Tensor]:
        """Numbers of each client's examples."""
        federation = self.federation
        labels = self.labels.numpy()
        part = torch.zeros(0, dtype=torch.int64)
        for client in range(federation.clients):
            if not (federation.duplicates and client % 2):
                weights = self.numpy.dirichlet(np.full(CLASSES, federation.alpha))[labels[self.free]] + 1e-6
                size = federation.other_examples if client % 2 else None
                size = federation.examples if size is None else size
                drawn = self.numpy.choice(len(self.free), size, replace=False, p=weights / weights.sum())
                part = torch.tensor(self.free[drawn])
                self.free = np.delete(self.free, drawn)
            yield part

    def record(self, folder: Path) -> None:
        federation = self.federation
        for _ in range(federation.warm):
            self._step([self._update(client) for client in range(federation.clients)])
        images = (self.images[self.auxiliary].float() ** federation.brightness).numpy()
        auxiliary = {"images": images, "labels": self.labels[self.auxiliary].numpy()}
        if federation.candidates:
            auxiliary["candidates"] = self.images[self.candidates].float().numpy()
            auxiliary["candidate_labels"] = self.labels[self.candidates].numpy()
        with Recorder(
            folder,
            parameters=self._state(),
            data="digits",
            learner=federation.learner if federation.declares_learner else None,
            auxiliary=auxiliary,
            holds="deltas",
            releases=[dict(release) for release in federation.releases],
            key=b"0" * 32,
            dtype="float64" if federation.dtype == torch.float64 else None,
        ) as recorder:
            velocity: Update = {}
            for number in range(federation.rounds):
                self._round(recorder, number, velocity)

    def _round(self, recorder: Recorder, number: int, velocity: Update) -> None:
        federation, before = self.federation, self._state()
        count = federation.participants or federation.clients
        clients = sorted(self.numpy.choice(federation.clients, count, replace=False).tolist())
        updates = {client: self._update(client) for client in clients}
        if federation.change is not None:
            updates = federation.change(Sent(updates, before, self.generator))
        truth, records, messages = dict[str, Any](), dict[str, Any](), dict[str, Any]()
        for client, update in updates.items():
            part, name = self.parts[client], f"client-{client}"
            messages[name] = ({key: value.numpy() for key, value in update.items()}, federation.reported or len(part))
            truth[name] = {"class_counts": torch.bincount(self.labels[part], minlength=CLASSES).tolist()}
            if federation.candidates:
                truth[name]["member"] = torch.isin(self.candidates, part).numpy()
            records[name] = self.images[part].float().numpy()
        known: dict[str, Any] = {} if federation.standardised else {"records": records}
        model = {name: value.numpy() for name, value in before.items()}
        recorder.round(number, model, messages, truth=truth, **known)
        self._step(list(updates.values()), velocity)

    def _state(self) -> Update:
        return {name: value.detach().clone() for name, value in self.model.named_parameters()}

    def _step(self, updates: list[Update], velocity: Update | None = None) -> None:
        """Adds the mean update to the model, with the server's momentum."""
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                mean = torch.stack([update[name] for update in updates]).mean(0)
                if velocity is not None:
                    mean = mean + self.federation.server_momentum * velocity.get(name, torch.zeros_like(mean))
                    velocity[name] = mean
                parameter.add_(mean)

    def _update(self, client: int) -> Update:
        """What a client's training changes."""
        federation, part = self.federation, self.parts[client]
        model = copy.deepcopy(self.model)
        start = [parameter.detach().clone() for parameter in model.parameters()]
        if federation.optimizer == "adam":
            optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=federation.learning_rate)
        else:
            optimizer = torch.optim.SGD(
                model.parameters(),
                lr=federation.learning_rate,
                momentum=federation.momentum,
                weight_decay=federation.weight_decay,
            )
        for _ in range(federation.epochs):
            order = torch.randperm(len(part), generator=self.generator)
            for batch in torch.split(order, federation.batch_size):
                optimizer.zero_grad()
                loss = federation.loss(model(self.images[part[batch]]), self.labels[part[batch]])
                apart = sum(((p - q) ** 2).sum() for p, q in zip(model.parameters(), start, strict=True))
                torch.autograd.backward(loss + federation.proximal / 2 * apart)
                if federation.gradient_clip is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), federation.gradient_clip)
                optimizer.step()
        names = [name for name, _ in model.named_parameters()]
        ends = [parameter.detach() for parameter in model.parameters()]
        return {name: end - first for name, end, first in zip(names, ends, start, strict=True)}


def of_each(function: Callable[[Tensor], Tensor]) -> Change:
    """A change of every tensor by itself."""
    return lambda sent: {
        client: {name: function(value) for name, value in update.items()} for client, update in sent.updates.items()
    }


def of_another(sent: Sent) -> dict[int, Update]:
    """Each client sends the update of the one before it."""
    clients = list(sent.updates)
    return {client: sent.updates[clients[place - 1]] for place, client in enumerate(clients)}


def of_the_first(sent: Sent) -> dict[int, Update]:
    """All clients send the first one's update."""
    return dict.fromkeys(sent.updates, next(iter(sent.updates.values())))


def sums_of_two(sent: Sent) -> dict[int, Update]:
    """Each client sends the sum of its update and another's."""
    others = of_another(sent)
    return {client: {name: own[name] + others[client][name] for name in own} for client, own in sent.updates.items()}


def with_model(sent: Sent) -> dict[int, Update]:
    """Clients send their weights."""
    return {client: {name: own[name] + sent.model[name] for name in own} for client, own in sent.updates.items()}


def only_noise(sent: Sent) -> dict[int, Update]:
    """Clients send noise of the size of their updates."""
    return {
        client: {name: value.std() * sent.noise(value) for name, value in update.items()}
        for client, update in sent.updates.items()
    }


def with_noise(deviation: float) -> Change:
    """Clients add Gaussian noise."""
    return lambda sent: {
        client: {name: value + deviation * sent.noise(value) for name, value in update.items()}
        for client, update in sent.updates.items()
    }


def clipped_to(clip: float) -> Change:
    """Clients clip their updates to a norm."""

    def clipped(update: Update) -> Update:
        factor = (clip / flat(update).norm()).clamp(max=1)
        return {name: value * factor for name, value in update.items()}

    return lambda sent: {client: clipped(update) for client, update in sent.updates.items()}


def largest(share: float) -> Change:
    """Clients send the largest numbers of an update only."""

    def kept(update: Update) -> Update:
        sizes = flat(update).abs()
        least = sizes.topk(int(share * len(sizes))).values[-1]
        return {name: value * (value.abs() >= least) for name, value in update.items()}

    return lambda sent: {client: kept(update) for client, update in sent.updates.items()}


def flat(update: Update) -> Tensor:
    """``(D,)`` all numbers of an update."""
    return torch.cat([value.flatten() for value in update.values()])


def rounded(bits: int) -> Change:
    """Each tensor is rounded to a symmetric grid of so many bits."""

    def to_grid(value: Tensor) -> Tensor:
        levels = 2.0 ** (bits - 1) - 1
        step = (value.abs().max() / levels).clamp(min=1e-30)
        return (value / step).round() * step

    return of_each(to_grid)


def scaled(factor: float) -> Change:
    """Updates are multiplied by a factor."""
    return of_each(lambda value: factor * value)


def cast(dtype: torch.dtype) -> Change:
    """Updates are sent in a type of fewer bits."""
    return of_each(lambda value: value.to(dtype).float())


signs = of_each(lambda value: 1e-3 * value.sign())


def _targets(labels: Tensor) -> Tensor:
    return functional.one_hot(labels, CLASSES).float()


def focal(logits: Tensor, labels: Tensor) -> Tensor:
    """Focal loss with exponent 2."""
    losses: Tensor = functional.cross_entropy(logits, labels, reduction="none")
    weights: Tensor = (1 - (-losses).exp()) ** 2
    return (weights * losses).mean()


smoothed = functools.partial(functional.cross_entropy, label_smoothing=0.1)
weighted = functools.partial(functional.cross_entropy, weight=torch.linspace(0.2, 2, CLASSES))


def one_against_all(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy of each class."""
    return functional.binary_cross_entropy_with_logits(logits, _targets(labels))


def squared(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean squared error of the logits."""
    return functional.mse_loss(logits, _targets(labels))


def _released(**release: Any) -> list[dict[str, Any]]:
    return [{"clip": None, "noise_scale": 0.0, "parameters": [], **release}]


_SEVERAL_STEPS: dict[str, Any] = {"epochs": 3, "batch_size": 10}

HONEST = {
    "honest": Federation(),
    "float64": Federation(dtype=torch.float64),
    "bfloat16": Federation(change=cast(torch.bfloat16)),
    "float16": Federation(change=cast(torch.float16)),
    "8 bits": Federation(change=rounded(8)),
    "noise of 1e-5": Federation(change=with_noise(1e-5)),
    "one example": Federation(examples=1, batch_size=1, clients=24, candidates=False),
    "one or 40 examples": Federation(other_examples=1, candidates=False),
    "duplicates": Federation(duplicates=True),
    "4 of 12 clients a round": Federation(participants=4, rounds=5),
    "warm start": Federation(warm=20),
    "server momentum": Federation(server_momentum=0.9, rounds=3),
    "momentum": Federation(momentum=0.9, **_SEVERAL_STEPS),
    "standardised": Federation(standardised=True),
    "no learner": Federation(declares_learner=False),
    "no learner, Adam": Federation(declares_learner=False, optimizer="adam", learning_rate=0.01, **_SEVERAL_STEPS),
}
"""Federations that do what is declared, or something that changes numbers by little."""

HOSTILE = {
    "another's update": Federation(change=of_another),
    "one update for all": Federation(change=of_the_first),
    "noise only": Federation(change=only_noise),
    "negated": Federation(change=scaled(-1)),
    "weights as deltas": Federation(change=with_model),
    "rate x 2": Federation(declared={"learning_rate": 0.2}),
    "rate x 10": Federation(declared={"learning_rate": 1.0}),
    "rate x 1.1": Federation(declared={"learning_rate": 0.11}),
    "rate / 10": Federation(declared={"learning_rate": 0.01}),
    "scaled by 0.01": Federation(change=scaled(0.01)),
    "scaled by 100": Federation(change=scaled(100)),
    "epochs 1 said 3": Federation(declared={"epochs": 3}),
    "2 epochs of 8 said one of 40": Federation(epochs=2, batch_size=8, declared={"epochs": 1, "batch_size": 40}),
    "Adam said SGD": Federation(optimizer="adam", learning_rate=0.01, declared={"optimizer": "sgd"}),
    "momentum hidden": Federation(momentum=0.9, declared={"momentum": 0.0}, **_SEVERAL_STEPS),
    "weight decay hidden": Federation(weight_decay=0.1, declared={"weight_decay": 0.0}, **_SEVERAL_STEPS),
    "FedProx hidden": Federation(proximal=1.0, **_SEVERAL_STEPS),
    "gradient clip hidden": Federation(gradient_clip=0.1, **_SEVERAL_STEPS),
    "clip hidden": Federation(change=clipped_to(0.05)),
    "sums of two": Federation(change=sums_of_two),
    "count x 2.5": Federation(reported=100),
    "count / 2": Federation(reported=20),
    "count 1": Federation(reported=1),
    "squared error": Federation(loss=squared),
    "multi-label": Federation(loss=one_against_all),
    "class weights": Federation(loss=weighted),
    "label smoothing": Federation(loss=smoothed),
    "focal loss": Federation(loss=focal),
    "signs": Federation(change=signs),
    "4 bits": Federation(change=rounded(4)),
    "top 5 %": Federation(change=largest(0.05)),
    "top 1 %": Federation(change=largest(0.01)),
    "noise hidden": Federation(change=with_noise(0.002)),
    "epsilon 1 said": Federation(releases=_released(clip=1.0, epsilon=1.0, delta=0.0)),
    "noise said": Federation(releases=_released(clip=1.0, noise_scale=0.01)),
    "1 bit said": Federation(releases=_released(bits=1.0)),
    "clip said": Federation(releases=_released(clip=0.01)),
}
"""Federations that do something else than what is declared."""


def honest(number: int) -> Federation:
    """A random honest federation, by its number: network, heterogeneity, numbers of examples, and local training."""
    draw = np.random.default_rng([number, 66])

    def one_of(*values: Any) -> Any:
        return values[draw.integers(len(values))]

    optimizer = one_of("sgd", "sgd", "sgd", "adam")
    network = one_of(
        ClassifierOptions(name="mlp", hidden=16),
        ClassifierOptions(name="mlp", hidden=128),
        ClassifierOptions(name="mlp", hidden=32, hidden_layers=1),
        ClassifierOptions(name="two-convolutions", channels=4),
        ClassifierOptions(name="two-convolutions", channels=8),
    )
    examples = one_of(5, 20, 40, 80)
    return Federation(
        clients=one_of(4, 8, 12),
        examples=examples,
        other_examples=one_of(None, 10, 30),
        alpha=one_of(0.1, 0.5, 5.0),
        rounds=1,
        warm=one_of(0, 0, 5, 30),
        network=network,
        optimizer=optimizer,
        learning_rate=one_of(0.001, 0.01) if optimizer == "adam" else one_of(0.02, 0.1, 0.3),
        momentum=one_of(0.0, 0.0, 0.9) if optimizer == "sgd" else 0.0,
        epochs=one_of(1, 1, 3, 5),
        batch_size=one_of(8, 16, 100),
        change=one_of(None, None, None, cast(torch.bfloat16), rounded(8), with_noise(1e-5)),
        seed=number,
    )
