"""The base class of defences: changes of the local training, and of the update before it is sent."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.core.release import Release
from fedleak.core.view import RoundView


@dataclass
class Update:
    """The deltas of several clients.

    Attributes:
        deltas: by parameter; ``(C, *shape)``, or ``(C, R, *row_shape)`` for the names in `rows` (zero where padded).
        rows: by row parameter, ``(C, R)`` int64 row numbers, padded with -1. All other rows are zero.
        background_scale: by row parameter, standard deviation of the noise on the rows that are *not* in `rows`. This
            noise is independent of everything, so it is drawn once for the cohort's weighted sum, with the distribution
            of the sum of the clients' draws.
        sent: ``(C,)`` True for the clients that send, None for all; others have a zero update and no weight.
        clients: ``(C,)`` client numbers, None if they do not matter.
        private: by parameter, the clients' private parameters after local training, ``(C, *shape)``. They stay with the
            clients: the round takes them out after `Defense.train_locally`, before the update is protected.
        losses: ``(C,)`` loss in each client's last local step; empty after the round has read it.

    Example:
        >>> import torch
        >>> from fedleak import Update
        >>> rows = torch.tensor([[4, 7], [2, -1]])  # the second client has one row, and one of padding
        >>> update = Update(deltas={"items": torch.zeros(2, 2, 3)}, rows={"items": rows})
        >>> update.row_mask("items").sum(1).flatten()
        tensor([2, 1])
    """

    deltas: dict[str, Tensor]
    rows: dict[str, Tensor] = field(default_factory=dict)
    background_scale: dict[str, float] = field(default_factory=dict)
    sent: Tensor | None = None
    clients: Tensor | None = None
    private: dict[str, Tensor] = field(default_factory=dict)
    losses: Tensor = field(default_factory=lambda: torch.zeros(0))

    def row_mask(self, parameter: str) -> Tensor:
        """Mask of the real rows, in a shape that broadcasts with ``deltas[parameter]``."""
        delta = self.deltas[parameter]
        is_row = self.rows[parameter] >= 0
        return is_row.reshape(*delta.shape[:2], *[1] * (delta.dim() - 2))


def hold_back(update: Update, sent: Tensor) -> Update:
    """The update with the deltas of clients outside ``sent (C,)`` set to zero."""
    if update.sent is not None:
        sent = sent & update.sent
    deltas = {name: delta * per_client(sent, delta) for name, delta in update.deltas.items()}
    return dataclasses.replace(update, deltas=deltas, sent=sent)


def per_client(values: Tensor, delta: Tensor) -> Tensor:
    """Values ``(C,)`` of the clients, in the type of ``delta (C, ...)`` and a shape that broadcasts with it."""
    return values.reshape(-1, *[1] * (delta.dim() - 1)).to(delta)


def with_whole_tables(update: Update, names: Collection[str], model: Mapping[str, Tensor]) -> Update:
    """The update with the row parameters `names` as whole tables, in the model's shapes; untrained rows are zero."""
    deltas = dict(update.deltas)
    rows = dict(update.rows)
    for name in names:
        row_numbers = rows.pop(name)
        # Which clients have a row in which column, without padding.
        client, column = (row_numbers >= 0).nonzero(as_tuple=True)
        # In the model's type: deltas of mixed precision are summed in float32.
        tables = model[name].new_zeros(len(row_numbers), *model[name].shape)
        tables[client, row_numbers[client, column]] = deltas[name][client, column].to(tables)
        deltas[name] = tables
    return dataclasses.replace(update, deltas=deltas, rows=rows)


@dataclass(frozen=True, kw_only=True)
class LocalStep:
    """A local step of one client that learns to classify, for defences that change it.

    Attributes:
        inputs: ``(N, *shape)`` examples as the network gets them.
        labels: ``(N,)`` classes, or ``(N, K)`` shares of them.
        mask: ``(N,)`` True for real examples.
        classes: number K of classes.
        output: name of the last layer.
        independent: whether the network's output for an example depends on no other of its batch.
        classify: maps inputs ``(N, *shape)`` to the features ``(N, F)`` that the last layer reads, and to logits ``(N,
            K)``, with the step's parameters and random numbers.
    """

    inputs: Tensor
    labels: Tensor
    mask: Tensor
    classes: int
    output: str
    independent: bool
    classify: Callable[[Tensor], tuple[Tensor, Tensor]]


def shown_counts(defenses: Sequence["Defense"], counts: Tensor) -> Tensor:
    """``(C,)`` numbers of examples that clients report after all defences."""
    for defense in defenses:
        counts = defense.shown_counts(counts)
    return counts


OwnView = Callable[[Update], tuple[RoundView, Tensor]]
"""What the server will see of an update, and ``(C, R)`` the clients' own interactions with the served items."""


Examples = Mapping[str, Tensor]
"""Examples of the clients of a round, by field ``(C, N, ...)``."""
Train = Callable[[Examples], Update]
"""Local training of the clients of a round on given examples, see `Defense.train_locally`."""


class Defense:
    """Base class of client-side defences; the constructor takes the hyper-parameters, and every hook is optional.

    Example:
        >>> import dataclasses
        >>> import torch
        >>> from fedleak import Defense, Update
        >>> class Rounding(Defense):
        ...     '''Each number of an update is rounded to a multiple of a step.'''
        ...
        ...     def __init__(self, *, step=0.5):
        ...         self.step = step
        ...
        ...     def protect(self, update, generators):
        ...         deltas = {name: (value / self.step).round() * self.step for name, value in update.deltas.items()}
        ...         return dataclasses.replace(update, deltas=deltas)
        >>> Rounding().protect(Update(deltas={"bias": torch.tensor([[0.9, -0.3]])}), None).deltas["bias"]
        tensor([[ 1.0000, -0.5000]])
    """

    joint: ClassVar[bool] = False
    """Whether it needs all clients of a round together, so that a cohort is never split to save memory."""
    participants: int = 1
    """Clients whose updates one message sums up."""

    def check_order(self, earlier: Sequence["Defense"]) -> None:
        """Called when the learner is built, with the defences that change an update before this one, in order."""

    def prepare(self, is_adversarys: Tensor | None) -> None:
        """Called before the first round; ``is_adversarys (num_clients,)``: the adversary's own devices, if any."""

    def set_key(self, key: bytes) -> None:
        """Called before the first round with the clients' secret key, see `fedleak.core.seeding.secret_key`."""

    def train_locally(self, examples: Examples, mask: Tensor, clients: Tensor, train: Train) -> Update:
        """Has the clients of a round train; a defence may change what they train on, or train them more than once.

        Args:
            examples: by field, ``(C, N, ...)``.
            mask: ``(C, N)`` True for real examples.
            clients: ``(C,)`` client numbers.
            train: trains the clients on examples, from the model and the private parameters before the round, and gives
                their update. It may be called several times: nothing of a call stays but what it returns.

        Returns:
            The update of one of the trainings, or one made of several; the clients keep its private parameters.
        """
        return train(examples)

    def recorded_facts(self, clients: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What a recording of the round holds on ``clients (C,)`` because of this defence, ``(C, ...)`` by name.

        Returns:
            What the server knows of them in addition, see `RoundView.priors`; and the ground truth.
        """
        return {}, {}

    def penalty(
        self, parameters: Mapping[str, Tensor], received: Mapping[str, Tensor], elements: Mapping[str, Tensor]
    ) -> Tensor | None:
        """A term ``(C,)`` added to every client's local loss, or None.

        Args:
            parameters: the clients' current public parameters, ``(C, ...)`` each; a row parameter holds the client's
                rows only, and padded rows equal those received.
            received: the same parameters as the server sent them.
            elements: ``(C,)`` number of trained numbers of each public parameter; padding is not counted.
        """
        return None

    def change_examples(self, step: LocalStep, generator: torch.Generator) -> LocalStep:
        """Changes the inputs and labels of a client's local step; the generator is of the client and the round."""
        return step

    def change_gradients(self, step: LocalStep, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        """Changes the gradients of a client's local step, ``shape`` by parameter, before its optimizer uses them."""
        return gradients

    @classmethod
    def overrides(cls, hook: str) -> bool:
        """Whether it does something in a hook, named as the method."""
        defined_by = next(kind for kind in cls.__mro__ if hook in vars(kind))
        return defined_by is not Defense

    @classmethod
    def changes_steps(cls) -> bool:
        """Whether it changes the examples or the gradients of local steps."""
        return cls.overrides("change_examples") or cls.overrides("change_gradients")

    def willing(self, received: Mapping[str, Tensor], clients: Tensor) -> Tensor | None:
        """``(C,)`` bool, which of ``clients (C,)`` train on the received public parameters, or None for all.

        The others send nothing, and nothing of theirs changes.
        """
        return None

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        """Changes the update before it is sent.

        Args:
            update: the clients' deltas. The result keeps every field that the defence does not change
                (`dataclasses.replace`).
            generators: the random generator of the client at a position in the cohort. It is the same object on every
                call, so that two parameters, or two defences, never draw the same noise.
        """
        return update

    def server_sees(self, update: Update) -> tuple[Update, Tensor | None]:
        """What the server sees of the sent update; the global model is trained on the update itself.

        Returns:
            The update seen, with every field restricted to the same clients, and their positions in the cohort
            ``(V,)``; None for all clients.
        """
        return update, None

    def shown_counts(self, counts: Tensor) -> Tensor:
        """``(C,)`` numbers of examples that clients with ``counts (C,)`` report, and that weight them."""
        return counts

    def contributors(self, clients: int) -> Tensor | None:
        """``(V, P)`` positions in the cohort of the clients whose sum each seen update is; None if it is of one."""
        return None

    def review(self, update: Update, own_view: OwnView, generators: Callable[[int], torch.Generator]) -> Update:
        """Decides whether to send, after all defences have protected the update."""
        return update

    def noises_whole(self, parameters: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the public `parameters` in which every number is noised, including rows without training."""
        return ()

    def releases(self, parameters: tuple[str, ...]) -> tuple[Release, ...]:
        """The public facts about this defence, for given names of the public parameters."""
        return ()
